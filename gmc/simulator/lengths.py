"""Where a simulation takes its response lengths from: a distribution, or lengths recorded in a run or a file."""

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gmc.errors import DataError, UsageError, no_file

Lengths = NDArray[np.int64]

LONGEST_NUMBER = 9
"""Digits of a recorded length."""

_STREAM = 0x1E46


class LengthSource(ABC):
    """Lengths (tokens) of the responses of every launch batch; `note` says in words where they come from."""

    prompts: int
    group_size: int
    note: str

    @abstractmethod
    def of_batch(self, batch: int) -> Lengths:
        """Lengths_PG of launch batch `batch`; the same for the same batch."""


class DrawnLengths(LengthSource):
    """Lognormal lengths, rounded, at least 1; `mean` is arithmetic, `sigma` the standard deviation of the logarithm."""

    def __init__(self, mean: float, sigma: float, *, prompts: int, group_size: int, seed: int) -> None:
        self._location = math.log(mean) - sigma**2 / 2
        self._sigma = sigma
        self._seed = seed
        self.prompts = prompts
        self.group_size = group_size
        self.note = f"lognormal lengths, mean {mean:g}, sigma of the log {sigma:g}"

    def of_batch(self, batch: int) -> Lengths:
        generator = np.random.default_rng([self._seed, _STREAM, batch])
        drawn = generator.lognormal(self._location, self._sigma, size=(self.prompts, self.group_size))
        return np.maximum(1, np.rint(drawn)).astype(np.int64)


class RecordedLengths(LengthSource):
    """Recorded lengths, batch by batch in their own order, from the start again when they are used up.

    lengths_NG: recorded groups in order; prompts: how many of them make a batch (repeated if there are fewer).
    """

    def __init__(self, lengths_NG: Lengths, note: str, *, prompts: int) -> None:
        groups, self.group_size = lengths_NG.shape
        batches = max(1, groups // prompts)
        self._lengths_NPG = np.resize(lengths_NG, (batches, prompts, self.group_size))
        self.prompts = prompts
        self.note = f"{note}: {groups} groups of {self.group_size} lengths, in order, repeated as needed"

    def of_batch(self, batch: int) -> Lengths:
        return np.asarray(self._lengths_NPG[batch % len(self._lengths_NPG)])


def lengths_from_spec(spec: str, *, prompts: int, group_size: int, seed: int) -> LengthSource:
    """`lognormal:MEAN:SIGMA`, or a file with one length a line. Raises `UsageError` or `DataError` naming what is wrong."""
    if not spec.startswith("lognormal"):
        return _from_file(Path(spec), prompts, group_size)
    try:
        _, mean, sigma = spec.split(":")
        mean_value, sigma_value = float(mean), float(sigma)
    except ValueError as error:
        raise UsageError(f"--lengths {spec}: write lognormal:MEAN:SIGMA, for example lognormal:570:0.6") from error
    if not 0 < mean_value <= 10_000_000 or not 0 <= sigma_value <= 5:
        raise UsageError(f"--lengths {spec}: the mean must be above 0 and at most 10,000,000 tokens, sigma from 0 to 5")
    return DrawnLengths(mean_value, sigma_value, prompts=prompts, group_size=group_size, seed=seed)


def _from_file(path: Path, prompts: int, group_size: int) -> LengthSource:
    if not path.is_file():
        raise UsageError(f"--lengths {path}: {no_file(path)}, and not lognormal:MEAN:SIGMA")
    values = []
    try:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if line.strip():
                values.append(_length(path, number, line.strip()))
    except UnicodeDecodeError as error:
        raise DataError(f"--lengths {path}: not a text file with one length a line") from error
    if len(values) < group_size:
        raise DataError(f"--lengths {path}: {len(values)} lengths, fewer than one group of {group_size}")
    usable = np.array(values[: len(values) // group_size * group_size], dtype=np.int64)
    return RecordedLengths(usable.reshape(-1, group_size), str(path), prompts=prompts)


def _length(path: Path, number: int, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
        raise DataError(
            f"--lengths {path}, line {number}: {textwrap.shorten(repr(text), 100)} is not a length in tokens (a whole number "
            "of at least 0)"
        )
    return int(text)


def lengths_of_shards(
    shards: Iterable[tuple[str, Sequence[Sequence[int]]]], note: str, *, prompts: int | None, group_size: int | None
) -> RecordedLengths:
    """Lengths recorded in shards, in batch order: pairs of file name and lengths_PG.

    prompts: groups a batch, by default as many as the first shard holds; group_size: what G must be, None for any.
    Raises `DataError` when there are no shards or their groups differ in size, and `UsageError` when G is another.
    """
    groups: list[Sequence[int]] = []
    for name, lengths_PG in shards:
        for lengths in lengths_PG:
            if len(lengths) != len((groups or lengths_PG)[0]):
                raise DataError(f"{name}: holds groups of {len(lengths)} responses, earlier ones have {len(groups[0])}")
        groups.extend(lengths_PG)
        prompts = prompts or len(lengths_PG)
    if not groups or not prompts:
        raise DataError(f"{note}: no rollouts to take lengths from; run gmc rollout, or give --lengths lognormal:MEAN:SIGMA")
    if group_size not in (None, len(groups[0])):
        raise UsageError(f"--group-size {group_size}: the groups in {note} have {len(groups[0])} responses")
    return RecordedLengths(np.array(groups, dtype=np.int64), note, prompts=prompts)
