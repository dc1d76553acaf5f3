"""At what moments of a small sharded run its ranks are killed, and what has to be the same after `--resume`."""

import json
from pathlib import Path
from typing import Any

from forked_ranks import Kill, Steps
from training_runs import metrics_of

SMALL = ["rollout.prompts=2", "rollout.group_size=4", "rollout.max_tokens=12", "train.updates=6", "train.checkpoint_every=2"]
DIGIT_REWARD = "reward.parts=[\"regex(pattern='[13579][^0-9]*$')\"]"
"""The last digit of an answer decides its reward, so that groups have different ones; the reward has a process of its own."""

SMALL += ["train.publish_every=2", DIGIT_REWARD]

KEEPS_A_GRADIENT = [*SMALL, "delay=2", "estimator.name=gac", "estimator.base=gmc"]
KEEPS_WEIGHTS = [*SMALL, "delay=8", "estimator=decoupled-ppo"]
"""At a delay of 8 only version 0 samples: another number of ranks rounds otherwise, and may sample another token."""

NEWEST = {"before": None, "updating": 2, "writing": 2, "ready": 4}
"""By moment, the checkpoint that must be the newest complete one after the kill, if the moment is what its name says."""


def moments(steps: list[Steps]) -> dict[str, dict[str, Kill]]:
    """By moment and victim.

    before: amid sampling for the first update. updating: amid the fourth update, whose sums are being exchanged. writing: a
    rank's writer has written its part of the second checkpoint, and not flushed it. ready: the second checkpoint counts, and
    the policy of the same update is being written.
    """
    kills: dict[str, dict[str, Kill]] = {moment: {} for moment in NEWEST}
    for rank, own in enumerate(steps):
        hashed = [
            number for number, step in enumerate(own["main"]) if len(step.split(" ")[-1]) == 64
        ]  # of weights, before each
        parts = [number for number, step in enumerate(own["writer"]) if step == "mkdir shared"]
        gathered = [
            number for number, step in enumerate(own["writer"]) if step == "all_gather_object" and number > parts[1] + 4
        ]
        kills["before"][f"rank {rank}"] = Kill(rank, "main", hashed[0] // 2)
        kills["updating"][f"rank {rank}"] = Kill(rank, "main", hashed[1] - 2)
        kills["writing"][f"rank {rank}"] = Kill(rank, "writer", parts[1] + 1)
        # The second rank comes to its second exchange about a policy's files once the first has written READY and joined.
        kills["ready"][f"rank {rank}"] = Kill(rank, "writer", gathered[rank])
    for victims in kills.values():
        victims["both"] = victims["rank 0"]._replace(all=True)
    return kills


def newest_checkpoint(run: Path) -> int | None:
    """The update of the newest complete one."""
    ready = sorted(path.parent.name for path in (run / "checkpoints").glob("u*/READY"))
    return int(ready[-1][1:]) if ready else None


def outcome(run: Path) -> dict[str, Any]:
    """All that must come out the same: metrics but for times, used groups, and the bytes of the newest policy's weights."""
    newest = sorted((run / "policies").glob("v*"))[-1]
    weights = {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}
    used = [json.loads(line) for line in (run / "used.jsonl").read_text().splitlines()]
    return {"metrics": metrics_of(run), "used": used, "version": newest.name, "weights": weights}


def require_movement(run: Path, *, updates: int = 3, first: int = 2, last: int = 4) -> None:
    """There is something to lose: so many updates have a gradient, one before update `first` and one from `last` on.

    The defaults are for `SMALL`: half of its updates, and those before the first and after the last checkpoint to resume from.
    """
    moving = [record["update"] for record in metrics_of(run) if record["optimizer/gradient_norm"] > 0]
    assert len(moving) >= updates, moving
    assert moving[0] < first, "the first checkpoint holds weights that moved"
    assert moving[-1] >= last, "what a resume repeats moves the weights"


def require_dead(codes: list[int], kill: Kill) -> None:
    """Who was to be killed was, and the others did not come to the end as if nothing had happened."""
    assert codes[kill.rank] == -9, codes
    assert all(code == -9 if kill.all else code != 0 for code in codes), codes
