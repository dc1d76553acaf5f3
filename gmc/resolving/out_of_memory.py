"""A GPU out of memory in one line: in the middle of what, how much was in use, and which setting makes it less."""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from types import TracebackType

import torch

from gmc.config.settings import RunSettings
from gmc.engines.registry import load_engine
from gmc.errors import GmcError
from gmc.resolving.memory import GIB


class Phase(Enum):
    """What a process was doing."""

    LOADING = "loading the model"
    SAMPLING = "sampling"
    SCORING = "scoring"
    BACKWARD = "the backward pass"
    STEP = "the optimizer's step"
    OTHER = "working"


PLACES = (
    ("/torch/optim/", "", Phase.STEP),
    ("/bitsandbytes/optim/", "", Phase.STEP),
    ("/gmc/training/optimizer", "", Phase.STEP),
    ("/gmc/engines/", "", Phase.SAMPLING),
    ("/gmc/scoring/", "backward", Phase.BACKWARD),
    ("/gmc/scoring/", "", Phase.SCORING),
    ("/gmc/models.py", "load", Phase.LOADING),
    ("/gmc/loading/", "", Phase.LOADING),
)
"""Part of a file's path, part of a function's name: what is done there. The innermost frame with one decides."""


def phase_of(trace: TracebackType | None) -> Phase:
    """What was being done where an error was raised."""
    for frame in reversed(traceback.extract_tb(trace)):
        for path, name, phase in PLACES:
            if path in frame.filename.replace("\\", "/") and name in frame.name:
                return phase
    return Phase.OTHER


@contextlib.contextmanager
def explained_out_of_memory(settings: RunSettings, where: Callable[[], str]) -> Iterator[None]:
    """Within the context a GPU out of memory is a `GmcError` of one line. where: what it begins with."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GmcError(_in_one_line(settings, where(), phase_of(error.__traceback__))) from error


def _in_one_line(settings: RunSettings, where: str, phase: Phase) -> str:
    device = settings.model.device
    used, reserved = (count(device) / GIB for count in (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved))
    free, whole = (size / GIB for size in torch.cuda.mem_get_info(device))
    numbers = f"{used:.1f} GiB in use at most, {reserved:.1f} held, {free:.1f} of {whole:.1f} free"
    return (
        f"{where}: the GPU is out of memory in the middle of {phase.value}: {numbers}. "
        f"Go on with {_cure(settings, phase)}; gmc train --plan shows what each part takes"
    )


def _cure(settings: RunSettings, phase: Phase) -> str:
    rollout, train = settings.rollout, settings.train
    if phase is Phase.LOADING:
        return "a GPU that nothing else uses, or several of them: torchrun and --set train.sharding=full"
    if phase is Phase.STEP:
        return "--resume and --set optimizer.name=adamw8bit, or under torchrun --set train.sharding=full"
    if phase is Phase.SAMPLING and load_engine(rollout.engine).takes_memory_share:
        return f"--resume and --set rollout.gpu_memory_share={rollout.gpu_memory_share / 2:.2g}"
    if phase is Phase.SAMPLING:
        return f"--resume and --set rollout.prompts={max(rollout.prompts // 2, 1)} or a smaller rollout.max_tokens"
    recompute = "" if train.activation_checkpointing else "train.activation_checkpointing=true, "
    half = max(train.tokens_per_micro_batch // 2, 1)
    return f"--resume and --set {recompute}train.tokens_per_micro_batch={half} or a smaller rollout.max_tokens"
