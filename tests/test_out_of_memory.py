"""A GPU out of memory, in every phase of a run: one line that says where, with numbers and the setting to change."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from training_runs import small_settings, train_run

from gmc.engines import vllm_start
from gmc.errors import GmcError
from gmc.models import load_model
from gmc.resolving.memory import GIB
from gmc.resolving.out_of_memory import explained_out_of_memory
from gmc.scoring.probe import packed_mismatch

pytestmark = pytest.mark.train

SETTINGS = ("train.updates=2", "delay=0", "train.activation_checkpointing=false", "train.tokens_per_micro_batch=512")
RECOMPUTE = "--set train.activation_checkpointing=true, train.tokens_per_micro_batch=256 or a smaller rollout.max_tokens"
PHASES = {
    "loading the model": (
        "transformers.AutoModelForCausalLM.from_pretrained",
        "at the run's start or end",
        "torchrun and --set train.sharding=full",
    ),
    "sampling": ("gmc.engines.flight.next_tokens", "update 0", "--set rollout.prompts=2 or a smaller rollout.max_tokens"),
    "scoring": ("gmc.scoring.passes.token_logp", "at the run's start or end", RECOMPUTE),
    "the backward pass": ("torch.autograd.backward", "update 0", RECOMPUTE),
    "the optimizer's step": ("torch._fused_adamw_", "update 0", "--set optimizer.name=adamw8bit"),
}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU says of itself."""
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 70 * GIB)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 75 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (GIB, 80 * GIB))


def fail(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 80 GiB")


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_of_training_says_where_how_much_and_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    target, where, cure = PHASES[phase]
    monkeypatch.setattr(target, fail)
    with pytest.raises(GmcError) as error:
        train_run(tmp_path / "run", small_settings(*SETTINGS))
    line = str(error.value)
    numbers = "70.0 GiB in use at most, 75.0 held, 1.0 of 80.0 free"
    assert line.startswith(f"{where}: the GPU is out of memory in the middle of {phase}: {numbers}. Go on with ")
    assert cure in line
    assert "\n" not in line
    assert isinstance(error.value.__cause__, torch.OutOfMemoryError)


def test_a_network_is_not_taken_for_one_without_packed_attention_for_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model("embedded")
    assert packed_mismatch(model) is None
    monkeypatch.setattr("gmc.scoring.passes.token_logp", fail)
    with pytest.raises(torch.OutOfMemoryError):
        packed_mismatch(model)


def test_vllm_is_told_to_take_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vllm_start.__dict__, "_config_of", lambda model: SimpleNamespace(save_pretrained=fail))
    settings = small_settings("rollout.engine=vllm", "rollout.gpu_memory_share=0.6")
    with (
        pytest.raises(GmcError, match=re.escape("in the middle of sampling: 70.0 GiB")) as error,
        explained_out_of_memory(settings, lambda: "follower a"),
    ):
        vllm_start.start_vllm(
            load_model("embedded"), dtype=torch.float32, log_file=tmp_path / "log", tensor_parallel=1, memory_share=0.6,
            max_model_len=None,
        )  # fmt: skip
    assert "--set rollout.gpu_memory_share=0.3" in str(error.value)
