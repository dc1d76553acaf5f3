"""A follower's launch batches: each is sampled, and then graded and written while the next one is sampled.

Its trainer log-probs need the weights that sampled it, so others are not loaded before. Where the engine samples with the
trainer's own network, which can do one thing at a time, they are computed at once; beside an engine with weights of its own,
while it samples.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gmc.engines.base import Completion
from gmc.generation.in_flight import Swaps, sample_in_flight
from gmc.live.follow import BatchCounts
from gmc.rollouts import flying
from gmc.rollouts.episodes import Play
from gmc.rollouts.flying import FlyingBatch
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.resampling import Made
from gmc.store.shards.groups import sampled_length
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.writer import write_shard


@dataclass
class FollowedBatch(ABC):
    """Launch batch `batch`, begun by the policy of version `version`. metadata: of a shard of that policy; look: called with
    the rows once they are written. scored: set when nothing is to be computed any more with the weights that sampled it."""

    maker: RolloutMaker
    batch: int
    version: int
    metadata: ShardMetadata
    look: Callable[[list[Rollout]], None]
    launched_at: float = field(default_factory=time.time, kw_only=True)
    scored: threading.Event = field(default_factory=threading.Event, kw_only=True)

    @abstractmethod
    def sample(self) -> int:
        """As `gmc.live.follow.Batch.sample`."""

    @abstractmethod
    def graded(self) -> tuple[Made, dict[str, float]]:
        """The finished batch, and what its reward logged."""

    def finish(self, path: Path) -> BatchCounts:
        """Grade the batch and write its shard, with the wall-clock seconds between which it was made."""
        try:
            made, logged = self.graded()
        finally:
            self.scored.set()
        ready_at = time.time()
        for row in made.rows:
            row.launched_at, row.ready_at = self.launched_at, ready_at
        write_shard(path, made.rows, replace(self.metadata, set_aside=made.set_aside, reward_log=logged))
        self.look(made.rows)
        return BatchCounts(
            len(made.rows) + self.maker.settings.rollout.group_size * len(made.set_aside),
            sum(sampled_length(row) for row in made.rows) + sum(group.tokens for group in made.set_aside),
        )


@dataclass
class WholeBatch(FollowedBatch):
    """One whose sampling depends on rewards or replies (`rollout.resample_equal`, environments): it is only written beside."""

    def sample(self) -> int:
        self._made, self._logged = self.maker.make(self.batch, self.version), dict(self.maker.reward.metrics())
        self.scored.set()
        return self.version

    def graded(self) -> tuple[Made, dict[str, float]]:
        return self._made, self._logged


@dataclass
class StagedBatch(FollowedBatch):
    """One that is graded, and where that can be also scored, beside the sampling of the next one."""

    def __post_init__(self) -> None:
        maker = self.maker
        self._flying = flying.launch(maker, self.batch, self.version)
        self._wait = maker.begin(self.batch, self.version, self._flying.asked_P)

    def sample(self) -> int:
        _record(self._flying, self._wait())
        if self.maker.engine.shares_weights:
            self._score()
        self._plays = flying.read(self.maker, self._flying)
        return self.version

    def graded(self) -> tuple[Made, dict[str, float]]:
        self._score()
        return _rewarded(self.maker, self._flying, self.version, self._plays)

    def _score(self) -> None:
        if not self.scored.is_set():
            flying.score(self.maker, [self._flying])
            self.scored.set()


@dataclass
class InFlightBatch(FollowedBatch):
    """One that goes on under newer policies, `live.in_flight`, and is graded beside the next one. swaps: how it gets them."""

    swaps: Swaps

    def sample(self) -> int:
        self._flying, self._last = sample_in_flight(self.maker, self.batch, self.version, self.swaps)
        self.scored.set()
        self._plays = flying.read(self.maker, self._flying)
        if self._last != self.version:  # several policies made it
            self.metadata = replace(self.metadata, weights_hash="")
        return self._last

    def graded(self) -> tuple[Made, dict[str, float]]:
        return _rewarded(self.maker, self._flying, self._last, self._plays)


def _rewarded(
    maker: RolloutMaker, one: FlyingBatch, version: int, plays: dict[int, list[Play]]
) -> tuple[Made, dict[str, float]]:
    flying.reward(maker, one, version, plays)
    rows = [replace(row, token_versions=flying.versions_of(row)) for row in one.rows]
    return Made(rows), dict(maker.reward.metrics())


def _record(one: FlyingBatch, completions_PG: list[list[Completion]]) -> None:
    """Take over what the engine sampled."""
    completions = [completion for group in completions_PG for completion in group]
    for row, completion in zip(one.rows, completions, strict=True):
        row.response_token_ids, row.engine_logprobs = completion.token_ids, completion.logprobs
        row.token_versions = [one.version] * len(completion.token_ids)
        row.finish_reason = completion.finish_reason
