"""One rank of a sharded run that turns bad in one way a run: its own rows, gradient or metrics lose their numbers.

    python -m torch.distributed.run --nproc-per-node 2 tests/spoiled_ranks.py FOLDER

Each rank writes what became of its runs to `rank-N.json`; only the last rank is spoiled.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from sharding_runs import SHARDED, run_here  # noqa: F401 (puts this folder on the path)
from torch.distributed.tensor import DTensor
from training_runs import small_settings

from gmc.errors import GmcError
from gmc.parameters.sharded import Sharded
from gmc.ranks import Ranks, joined_ranks
from gmc.training import update as update_module
from gmc.training.run import train_run

UPDATE = 1
"""The update in which it happens; the one before is saved and published."""

SMALL = ["rollout.prompts=2", "rollout.group_size=4", "rollout.max_tokens=12", "delay=4", "train.updates=4"]
SMALL += ["train.checkpoint_every=1", "train.publish_every=1", "reward.parts=[\"regex(pattern='[13579][^0-9]*$')\"]", SHARDED]


def spoil(tensor: Any) -> None:
    """One number of this rank's rows, if it has any of this tensor."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    local.data.view(-1)[-1:] = math.nan


class Count:
    """Calls a function, and lets something happen at the call of one update."""

    def __init__(self, real: Callable[..., Any], happens: Callable[..., None]) -> None:
        self.real, self.happens, self.calls = real, happens, 0

    def before(self, *given: Any, **named: Any) -> Any:
        if self._now():
            self.happens(*given)
        return self.real(*given, **named)

    def after(self, *given: Any, **named: Any) -> Any:
        value, now = self.real(*given, **named), self._now()
        if now:
            self.happens(*given)
        return value

    def _now(self) -> bool:
        self.calls += 1
        return self.calls == UPDATE + 1


def rows(parameters: Sharded) -> list[Any]:
    return [tensor for tensor in parameters.tensors if tensor.numel()]


def patches(what: str) -> Any:
    if what == "gradient":
        count = Count(Sharded.put, lambda parameters, gradient: spoil(rows(parameters)[-1].grad))
        return patch.object(Sharded, "put", lambda *given: count.after(*given))
    if what == "step":
        count = Count(Sharded.step, lambda parameters, optimizer: spoil(rows(parameters)[-1]))
        return patch.object(Sharded, "step", lambda *given: count.after(*given))
    if what == "weights":
        count = Count(update_module.Updater.run, lambda updater, *_: spoil(rows(updater.parameters)[-1]))
        return patch.object(update_module.Updater, "run", lambda *given: count.before(*given))
    real, count = update_module.weight_metrics, Count(lambda: None, lambda: None)

    def metrics(*given: Any) -> dict[str, float]:
        return {**real(*given), **({"weights/odd": math.nan} if count._now() else {})}

    return patch.object(update_module, "weight_metrics", metrics)


CASES = {
    "gradient": [],
    "step": [],
    "weights": [],
    "metric": ['train.stop_on=["non-finite"]'],
    "metric, said alone": [],
}


def outcome(path: Path, what: str, ranks: Ranks) -> str:
    settings = small_settings(*SMALL, *CASES[what])
    try:
        if ranks.rank == ranks.count - 1:
            with patches(what):
                result = train_run(path, settings, ranks=ranks)
        else:
            result = train_run(path, settings, ranks=ranks)
    except GmcError as error:
        return f"{type(error).__name__}: {error}"
    return f"{result.updates} updates, finished: {result.finished}"


def main() -> None:
    folder = Path(sys.argv[1])
    with joined_ranks() as ranks:
        torch.set_num_threads(1)
        found = {what: outcome(folder / what, what, ranks) for what in CASES}
        (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
