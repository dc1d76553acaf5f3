"""The noise floor: how far the engine's log-probs of its own samples lie from the trainer's, with the same weights.

The mean difference is near zero and says nothing. What matters for whole-response ratios is the spread, which grows with the
square root of length: a rule that caps a ratio at 1.28 is governed by rounding once log ρ spreads by a quarter.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gmc.store.shards.groups import sampled
from gmc.store.shards.rollout import Rollout

NEGLIGIBLE = 0.01
"""Below this in log ρ, rounding cannot decide whether a ratio exceeds a cap of 1.28."""


@dataclass(frozen=True)
class LengthBucket:
    """Responses of shortest … longest tokens. spread: standard deviation of their whole-response log ρ, worst: largest |log ρ|.

    log ρ here is the sum over tokens of engine minus trainer log-probs (nats): what rounding alone does to a ratio.
    """

    shortest: int
    longest: int
    responses: int
    spread: float
    worst: float


@dataclass(frozen=True)
class NoiseFloor:
    """Of `tokens` tokens: mean, spread (standard deviation) and largest absolute engine-minus-trainer log-prob, in nats.

    response_spread: standard deviation of whole-response log ρ over all lengths.
    """

    responses: int
    tokens: int
    mean: float
    spread: float
    worst: float
    response_spread: float
    buckets: tuple[LengthBucket, ...]

    @property
    def is_rounding(self) -> bool:
        """Whether it is too small to decide anything, so that nobody needs to hear of it."""
        return max(bucket.worst for bucket in self.buckets) < NEGLIGIBLE

    def log_to(self, log: logging.Logger) -> None:
        """Say it where it matters; elsewhere only --verbose shows it."""
        log.log(logging.DEBUG if self.is_rounding else logging.INFO, "%s", self)

    def __str__(self) -> str:
        said = f"log-probs of engine and trainer differ by ±{self.spread:.1g} a token"
        if self.is_rounding:
            return f"{said}: rounding, too small to matter for any ratio"
        parts = [f"±{bucket.spread:.1g} at {_range(bucket)} tokens" for bucket in self.buckets]
        return f"{said}, the log-ratio of a whole response by {', '.join(parts)}: keep --logprobs trainer"


def measure_noise(rollouts: Iterable[Rollout]) -> NoiseFloor | None:
    """The noise floor of rollouts that hold both kinds of log-probs; None when none of them does, or all are empty.

    Lengths are put into buckets by powers of two.
    """
    found = [
        np.subtract(*(np.asarray(sampled(row, values), np.float64) for values in (row.engine_logprobs, row.trainer_logprobs)))
        for row in rollouts
        if row.engine_logprobs and row.trainer_logprobs
    ]
    differences = [difference for difference in found if len(difference)]
    if not differences:
        return None
    tokens = np.concatenate(differences)
    return NoiseFloor(
        responses=len(differences),
        tokens=len(tokens),
        mean=float(tokens.mean()),
        spread=float(tokens.std()),
        worst=float(np.abs(tokens).max()),
        response_spread=float(np.std([difference.sum() for difference in differences])),
        buckets=tuple(_buckets(differences)),
    )


def _buckets(differences: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> list[LengthBucket]:
    by_power: dict[int, list[tuple[int, float]]] = {}
    for difference in differences:
        by_power.setdefault(int(math.log2(len(difference))), []).append((len(difference), float(difference.sum())))
    found = []
    for power in sorted(by_power):
        lengths, log_rho = zip(*by_power[power], strict=True)
        found.append(
            LengthBucket(
                shortest=min(lengths),
                longest=max(lengths),
                responses=len(lengths),
                spread=float(np.std(log_rho)),
                worst=float(np.abs(log_rho).max()),
            )
        )
    return found


def _range(bucket: LengthBucket) -> str:
    return str(bucket.shortest) if bucket.shortest == bucket.longest else f"{bucket.shortest}–{bucket.longest}"
