"""Checkpoints and policies of parameters that lie in parts on several ranks: every rank copies and writes what is its own.

Each function is called on all ranks at the same time, copies, and returns what each rank's writer does while training goes on.
A folder is complete by its marker alone, which rank 0 writes last, after all ranks have written theirs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from gmc.parameters.base import Parameters
from gmc.parameters.saved import own_files
from gmc.parameters.sharded import Sharded
from gmc.store.checkpoints import SHARED, finish_shared_checkpoint
from gmc.store.files import begin_directory, checksum, fsync_file, is_ready
from gmc.store.policies import finish_shared_policy
from gmc.store.run_directory import RunDirectory, checkpoint_name, policy_name
from gmc.training.saved_state import flush_logs, shared_state
from gmc.training.update import Updater


def shared_checkpoint(run: RunDirectory, updater: Updater, version: int, extra: dict[str, Any]) -> Callable[[], None]:
    """What writes a checkpoint of the state after `version` updates. Raises `GmcError` for a rule that cannot be saved so."""
    parameters = updater.parameters
    assert isinstance(parameters, Sharded)
    ranks, path = parameters.ranks, run.checkpoints / checkpoint_name(version)
    tensors, rows = shared_state(updater, version)
    copies = {key: tensor.detach().to("cpu", copy=True) for key, tensor in tensors.items()}
    folder = ranks.from_rank_0(lambda: None if is_ready(path) else begin_directory(path))
    keep = updater.settings.train.keep_checkpoints

    def write() -> None:
        if folder is None:
            return
        parameters.write(folder / SHARED, copies, rows)
        own = {file.name: checksum(file) for file in own_files(folder / SHARED, ranks.rank)}
        digests = _gathered(parameters, own)
        if ranks.is_rank_0:
            flush_logs(run)
            finish_shared_checkpoint(folder, path, version, digests=digests, extra=extra, keep=keep)

    return write


def shared_policy(run: RunDirectory, parameters: Parameters, version: int, dtype: torch.dtype) -> Callable[[], None]:
    """What publishes the current policy as `version`, in files that a follower loads like any other's."""
    assert isinstance(parameters, Sharded)
    ranks, model, path = parameters.ranks, parameters.model, run.policies / policy_name(version)
    sizes = {name: parameters.shape(name).numel() for name in parameters.own}
    writer = _writers(sizes, ranks.count)
    mine = {
        name: tensor.to("cpu", dtype, copy=True).contiguous()
        for name, tensor in parameters.full()
        if writer[name] == ranks.rank
    }
    folder = ranks.from_rank_0(lambda: begin_directory(path))

    def write() -> None:
        file = folder / f"model-{ranks.rank + 1:05d}-of-{ranks.count:05d}.safetensors"
        if mine:
            save_file(mine, file, metadata={"format": "pt"})
            fsync_file(file)
        files = _gathered(parameters, dict.fromkeys(mine, file.name))
        digests = _gathered(parameters, {file.name: checksum(file)} if mine else {})
        if ranks.is_rank_0:
            finish_shared_policy(model, folder, path, version, run.run_id, dtype=dtype, files=files, digests=digests)

    return write


def _writers(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Which rank writes which parameter: neighbors together, about the same number of values each."""
    total, seen, writers = sum(sizes.values()), 0, {}
    for name, size in sizes.items():
        writers[name] = min(ranks * (2 * seen + size) // (2 * total), ranks - 1)
        seen += size
    return writers


def _gathered(parameters: Sharded, own: dict[str, str]) -> dict[str, str]:
    """The entries of all ranks; each has done its part when this returns."""
    entries: list[Any] = [None] * parameters.ranks.count
    dist.all_gather_object(entries, own, group=parameters.writing)
    return {key: value for each in entries for key, value in each.items()}
