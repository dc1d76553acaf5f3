"""Which rollouts are worth a look: the best, the worst, those cut off, those without an answer, those whose parts disagree."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.errors import UsageError
from gmc.store.run_directory import rollout_name
from gmc.store.shards.groups import sampled_length, versions_of
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.store import scan


@dataclass(frozen=True)
class Seen:
    """One rollout with the record of its file."""

    row: Rollout
    metadata: ShardMetadata
    path: Path


@dataclass(frozen=True)
class Wanted:
    """Which rollouts are looked at. batch, version: of launch and of a policy that sampled it; problem, status: as they stand
    in the shard; contains: text that the response holds. None or empty: any."""

    batch: int | None = None
    version: int | None = None
    problem: str = ""
    status: str = ""
    contains: str = ""

    def __call__(self, row: Rollout) -> bool:
        """Whether a rollout is among them."""
        return (
            (self.version is None or self.version in versions_of(row))
            and self.problem in ("", row.problem_id)
            and self.status in ("", row.status)
            and self.contains in row.response
        )


def read_wanted(folder: Path, wanted: Wanted) -> list[Seen]:
    """The wanted rollouts of a folder of shards, in order. Raises `UsageError` when there are none, `DataError` for damage."""
    stored = scan(folder)
    if not stored:
        raise UsageError(f"{folder}: no rollouts here (files named {rollout_name(0, 0)}); gmc rollout and gmc train make some")
    chosen = [one for one in stored if wanted.batch in (None, one.batch)]
    seen = []
    for one in chosen:
        shard = read_shard(one.path)
        seen += [Seen(row, shard.metadata, one.path) for row in shard.rollouts if wanted(row)]
    if not seen:
        raise UsageError(f"{folder}: {len(stored)} shards, and none of their rollouts is wanted; take a filter away")
    return seen


def best(seen: Sequence[Seen]) -> list[Seen]:
    """By reward, highest first."""
    return sorted(seen, key=lambda one: -one.row.reward)


def worst(seen: Sequence[Seen]) -> list[Seen]:
    """By reward, lowest first."""
    return sorted(seen, key=lambda one: one.row.reward)


def truncated(seen: Sequence[Seen]) -> list[Seen]:
    """Those cut off at the length limit, the longest first."""
    cut = [one for one in seen if one.row.finish_reason == "length"]
    return sorted(cut, key=lambda one: -sampled_length(one.row))


def unparseable(seen: Sequence[Seen]) -> list[Seen]:
    """Those in which the reward found no answer."""
    return [one for one in seen if one.row.status == "unparseable"]


def disagreement(seen: Sequence[Seen]) -> list[Seen]:
    """By how far the parts of the reward are apart, each measured in its own standard deviations; farthest first.

    Parts that do not apply, and files of one part, say nothing.
    """
    by_part: dict[str, list[float]] = {}
    for one in seen:
        for name, value in _parts(one):
            by_part.setdefault(name, []).append(value)
    scales = {name: (statistics.fmean(values), statistics.pstdev(values)) for name, values in by_part.items()}
    apart = []
    for one in seen:
        marks = [(value - scales[name][0]) / scales[name][1] for name, value in _parts(one) if scales[name][1] > 0]
        if len(marks) > 1:
            apart.append((max(marks) - min(marks), one))
    return [one for _, one in sorted(apart, key=lambda pair: -pair[0])]


def _parts(one: Seen) -> list[tuple[str, float]]:
    values = one.row.reward_parts or []
    return [(name, value) for name, value in zip(one.metadata.reward_parts, values, strict=False) if value == value]


KINDS: dict[str, Callable[[Sequence[Seen]], list[Seen]]] = {
    "best": best,
    "worst": worst,
    "truncated": truncated,
    "unparseable": unparseable,
    "disagreement": disagreement,
}
"""What may be asked for by name, in the order shown."""


def group_of(seen: Sequence[Seen], name: str) -> list[Seen]:
    """The responses of one group, BATCH:GROUP, by sample. Raises `UsageError` for another form or a group that is not there."""
    batch, colon, group = name.partition(":")
    if not (colon and batch.isdecimal() and group.isdecimal()):
        raise UsageError(f"--group {name}: write it as BATCH:GROUP, for example 0:3")
    found = [one for one in seen if (one.row.batch, one.row.group) == (int(batch), int(group))]
    if not found:
        raise UsageError(f"--group {name}: no such group among the rollouts that the filters leave")
    return found
