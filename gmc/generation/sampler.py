"""A process that samples for a trainer: it makes batches of rollouts with the policies it is handed, one batch at a time.

`gmc.training.samplers` starts it (`gmc.generation.sampler_start`) with CUDA_VISIBLE_DEVICES set, sends one JSON line a job and
gets one line an answer. It ends when its standard input does, so that nothing holds a GPU once the trainer is gone, however
that went.

    {"run": …, "name": …, "settings": {…}, "origins": {…}, "initial": FILE}    first; answered by {"ready": true}
    {"batch": 7, "version": 3, "weights": FILE, "shard": FILE}                  answered by {"batch": 7}
    {"end": true}
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gmc.config.settings import RunSettings
from gmc.errors import DataError, GmcError
from gmc.models import LanguageModel
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.rollouts.maker import RolloutMaker
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.rollout import ShardMetadata
from gmc.store.shards.writer import write_shard
from gmc.store.temporary import temporary_name

END: dict[str, Any] = {"end": True}


class Sampler:
    """Makes batches with the policy of whatever version a job names.

    initial: where the weights of version 0 are kept for all samplers of the machine, from when the first of them needs another
    version.
    """

    def __init__(self, maker: RolloutMaker, initial: Path) -> None:
        self._maker, self._initial = maker, initial
        self._version = 0
        self._metadata: dict[int, ShardMetadata] = {}

    def make(self, batch: int, version: int, weights: Path, shard: Path) -> None:
        """Make one batch and write its shard. weights: a safetensors file of what training changes, not read for version 0."""
        if version != self._version:
            if not self._version and not self._initial.exists():
                _write_weights(self._maker.model, self._initial)
            take_weights(self._maker.model, weights if version else self._initial)
            self._version = version
        made = self._maker.make(batch, version)
        if version not in self._metadata:
            self._metadata = {0: self._metadata[0]} if 0 in self._metadata else {}
            self._metadata[version] = self._maker.metadata(version)
        logged = dict(self._maker.reward.metrics())
        write_shard(shard, made.rows, replace(self._metadata[version], set_aside=made.set_aside, reward_log=logged))


def changing(model: LanguageModel) -> dict[str, torch.Tensor]:
    """What training changes, by name, sharing storage with the network."""
    return {name: each.detach() for name, each in model.network.named_parameters() if each.requires_grad}


def take_weights(model: LanguageModel, path: Path) -> None:
    """Put the tensors of a safetensors file in place. Raises `DataError` when they are not those that training changes."""
    given, own = load_file(path), changing(model)
    if {name: tensor.shape for name, tensor in given.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise DataError(f"{path}: its weights are not those of {model.source}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(given[name])


def _write_weights(model: LanguageModel, path: Path) -> None:
    temporary = temporary_name(path)
    save_file({name: tensor.cpu().contiguous() for name, tensor in changing(model).items()}, temporary)
    os.replace(temporary, path)


def open_sampler(asked: dict[str, Any], resources: ExitStack) -> Sampler:
    """A sampler for the run and the settings of the first line."""
    settings = RunSettings.model_validate(asked["settings"]).with_origins(asked["origins"])
    run = RunDirectory.open(Path(asked["run"]))
    model = build_model(settings)
    engine = build_engine(settings, model, run.engine_log(asked["name"]))
    resources.callback(engine.close)
    maker = build_maker(run.run_id, settings, model, build_scorer(settings, model), engine)
    resources.callback(maker.close)
    return Sampler(maker, Path(asked["initial"]))


def main() -> int:
    """Answer jobs until the end; the exit status."""
    answer = _answers()
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    try:
        with ExitStack() as resources:
            sampler = open_sampler(jobs.get(), resources)
            answer({"ready": True})
            while (job := jobs.get()) != END:
                sampler.make(job["batch"], job["version"], Path(job["weights"]), Path(job["shard"]))
                answer({"batch": job["batch"]})
    except GmcError as error:
        answer({"error": str(error)})
        return 1
    return 0


def _read(jobs: "queue.Queue[dict[str, Any]]") -> None:
    """Queue the lines of standard input; end the process at once where it ends without a word."""
    for line in sys.stdin:
        job = json.loads(line)
        jobs.put(job)
        if job == END:
            return
    os._exit(1)


def _answers() -> Callable[[dict[str, Any]], None]:
    """Writes answers to what was standard output; whatever else is printed goes to standard error."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(record: dict[str, Any]) -> None:
        print(json.dumps(record), file=stream, flush=True)

    return answer
