"""A process that forks writers on request, so that tests can kill them at any moment without paying for imports each time.

One JSON request a line on stdin; the answer on stdout is the writer's pid, then, when it has ended, its exit status.

    {"kind": "shard" | "checkpoint", "directory": DIR}                 write one after another until killed
    {"kind": …, "directory": DIR, "die_at": K}                          write once, die at the K-th step that touches the disk
    {"kind": …, "directory": DIR, "limit": BYTES}                       write once where no file may grow beyond BYTES
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from shard_samples import METADATA, make_rollouts

from gmc.errors import GmcError
from gmc.store.checkpoints import save_checkpoint
from gmc.store.files import append_jsonl
from gmc.store.run_directory import rollout_name
from gmc.store.shards.writer import write_shard


def write_numbered_shard(directory: Path, number: int) -> None:
    write_shard(directory / rollout_name(number, 2), make_rollouts(groups=15, batch=number), METADATA)


def write_numbered_checkpoint(directory: Path, number: int) -> None:
    tensors = {f"layer{index}": torch.full((300, 100), float(number)) for index in range(3)}
    extra = {"number": number, "run_id": "run-a", "source": {}}
    save_checkpoint(directory, number, weights=tensors, optimizer=tensors, estimator={}, extra=extra, keep=2)


def append_long_line(directory: Path, number: int) -> None:
    append_jsonl(directory / "metrics.jsonl", {"update": number, "text": "x" * 100_000})


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "shard": write_numbered_shard,
    "checkpoint": write_numbered_checkpoint,
    "log": append_long_line,
}


def die_at(step: int) -> None:
    """Let the process end, as if killed, just before the `step`-th call of those that change the disk."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            if calls == step:
                os._exit(9)
            calls += 1
            return function(*args, **kwargs)

        return call

    for name in ("fsync", "replace", "unlink", "mkdir", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))


def child(request: dict[str, Any]) -> int:
    write, directory = WRITERS[request["kind"]], Path(request["directory"])
    if "limit" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        try:
            write(directory, 1000)
        except GmcError as error:
            (directory.parent / "message").write_text(str(error)[: request["limit"]])
            return 1
        return 0
    if "die_at" in request:
        die_at(request["die_at"])
        write(directory, 1000)
        return 0
    number = request.get("start", 1)
    while True:
        write(directory, number)
        number += 1


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(child(json.loads(line)))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
