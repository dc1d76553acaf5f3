"""A follower's batch whose responses go on while newer policies come: `live.in_flight`."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gmc.engines.base import Partial
from gmc.rollouts import flying
from gmc.rollouts.flying import FlyingBatch
from gmc.rollouts.maker import RolloutMaker

LOOK_SECONDS = 0.2
"""How often a follower looks for a newer policy while it samples."""


@dataclass(frozen=True)
class Swaps:
    """How a batch comes to newer weights. newer: whether there are any; load: takes them and returns their version, that of the
    old ones when they have gone meanwhile; keep_cache: whether keys and values that the old weights computed stay."""

    newer: Callable[[], bool]
    load: Callable[[], int]
    keep_cache: bool


def sample_in_flight(maker: RolloutMaker, batch: int, version: int, swaps: Swaps) -> tuple[FlyingBatch, int]:
    """Launch batch `batch`, begun by `version`, sampled and scored but not rewarded, and the version that ended it.

    Finished tokens keep their version and the engine's log-probs. What weights have sampled is scored under them before they
    are replaced, so a trainer log-prob is exact whatever the cache holds: the engine's minus the trainer's is the mismatch of
    the engine, stale cache included, and the current policy's minus the trainer's is staleness alone.
    """
    one = flying.launch(maker, batch, version)
    partials = flying.partials_of(maker, one)
    going = maker.engine.flight(partials, sampling=maker.settings.rollout.sampling(maker.template.stop))
    pause = _Pause(swaps.newer)
    while not going.run(pause):
        _settle(maker, one, version, partials)
        version = swaps.load()
        going.renew(keep_cache=swaps.keep_cache)
    _settle(maker, one, version, partials)
    return one, version


def _settle(maker: RolloutMaker, one: FlyingBatch, version: int, partials: list[Partial]) -> None:
    """What was sampled since the last time is of `version`, and is scored under it."""
    flying.record(one, partials, version)
    flying.score(maker, [one])


class _Pause:
    """Says now and then whether there is a newer policy, since looking costs a listing of a folder."""

    def __init__(self, newer: Callable[[], bool]) -> None:
        self._newer = newer
        self._looked = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._newer()
