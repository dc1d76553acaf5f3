"""Training on rollouts that several versions sample: `--delay inflight:C`, in-flight weight updates that can be repeated."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from gmc.delays.base import FlightClock, GroupRef
from gmc.engines.base import Engine
from gmc.errors import DataError, UsageError
from gmc.rollouts import flying
from gmc.rollouts.flying import FlyingBatch
from gmc.rollouts.group_reader import GroupReader
from gmc.rollouts.lengths import LengthAccount
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.source import Progress, RolloutSource
from gmc.store.checkpoints import CURE
from gmc.store.records import checked
from gmc.store.shards.reader import read_metadata
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.store.shards.unfinished import decode_rows, encode_rows
from gmc.store.shards.writer import write_shard

log = logging.getLogger(__name__)

ATTACHMENT = "in-flight.parquet"
"""In a checkpoint: the rows of all batches that are not whole."""


@dataclass(frozen=True)
class _State:
    """What a checkpoint keeps. flying: batch, version and rewarded groups of each batch that is not whole."""

    clock: dict[str, Any]
    flying: list[tuple[int, int, list[int]]]
    generated: LengthAccount
    trained: LengthAccount


_STATE = TypeAdapter(_State)


class InflightSource(RolloutSource):
    """Lets every version sample what is due while it stands, scores it, and hands out the groups that are ready first.

    A batch becomes a shard when its last response is finished; until then its rows are in the checkpoint. spec: the delay as it
    was written. stopping: polled while sampling.
    """

    def __init__(
        self,
        store: RolloutStore,
        clock: FlightClock,
        maker: RolloutMaker,
        *,
        spec: str,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._clock, self._maker = store, clock, maker
        self._spec, self._stopping = spec, stopping
        self._flying: dict[int, FlyingBatch] = {}
        self._stored: dict[int, StoredShard] = {}
        self._generated, self._trained = LengthAccount(), LengthAccount()
        self._reader = GroupReader(store)

    @property
    def waiting(self) -> int:
        return self._clock.waiting

    @property
    def to_fill(self) -> int | None:
        return None

    @property
    def engine(self) -> Engine:
        return self._maker.engine

    @property
    def in_flight(self) -> dict[int, int]:
        return {batch: one.version for batch, one in self._flying.items()}

    def metrics(self) -> dict[str, float]:
        """The groups waiting, how many of them are still in flight, and mean lengths as `ScheduledSource` gives them."""
        unfinished = sum(len(one.rows_PG) - len(one.rewarded) for one in self._flying.values())
        return {
            "response/generated_length_mean_so_far": self._generated.mean,
            "response/trained_length_mean_so_far": self._trained.mean,
            "rollouts/groups_waiting": float(self.waiting),
            "rollouts/groups_in_flight": float(unfinished),
            **{f"reward/log/{key}": value for key, value in self._maker.reward.metrics().items()},
        }

    def launch(self, update: int, progress: Progress | None = None) -> bool:
        """Sample all tokens that begin before update `update` ends, which is while its version stands."""
        if not self._clock.has_begun:
            self._begin()
        until = self._clock.now + 1
        while True:
            if self._stopping():
                return False
            self._advance(update, until, progress)
            start = self._clock.start
            if start is not None and start <= until:  # nothing that is still unfinished can be ready earlier
                break
            until += 1
        if start + 1 > until:
            self._advance(update, start + 1, progress)
        flying.score(self._maker, list(self._flying.values()))
        for one in list(self._flying.values()):
            self._finish(one, update)
        return True

    def take(self, update: int) -> list[list[Rollout]]:
        groups = [self._group(reference) for reference in self._clock.take(update)]
        for group in groups:
            self._trained.add([len(row.response_token_ids) for row in group])
        return groups

    def ended(self, updates: int) -> None:
        """Finish the batches of which a group was trained on, with the last version, so that all that was used is on disk.

        A run that is made longer sets them aside and goes on from its checkpoint.
        """
        waiting = self._clock.waiting_groups()
        most = self._maker.settings.rollout.max_tokens
        partly = [one for one in self._flying.values() if any((one.batch, group) not in waiting for group in one.rewarded)]
        before = {one.batch: set(one.finished()) for one in partly}
        flying.extend(self._maker, partly, [most] * len(partly), updates)
        self._report_ready(before)
        flying.score(self._maker, partly)
        for one in partly:
            self._finish(one, updates)

    def state_dict(self) -> dict[str, Any]:
        return {
            "clock": self._clock.flight_state(),
            "flying": [[one.batch, one.version, sorted(one.rewarded)] for one in self._flying.values()],
            "generated": asdict(self._generated),
            "trained": asdict(self._trained),
        }

    def attachments(self) -> dict[str, bytes]:
        rows = [row for one in self._flying.values() for row in one.rows]
        return {ATTACHMENT: encode_rows(rows, ATTACHMENT)}

    def load_attachments(self, attachments: Mapping[str, bytes], origin: str) -> None:
        if ATTACHMENT not in attachments:
            raise DataError(f"{origin}: it holds nothing in flight, so it was made under another delay; resume with that one")
        for row in decode_rows(attachments[ATTACHMENT], f"{origin}/{ATTACHMENT}"):
            one = self._flying.setdefault(row.batch, FlyingBatch(row.batch, row.policy_version, [], []))
            if row.sample == 0:
                one.rows_PG.append([])
            one.rows_PG[-1].append(row)

    def load_state_dict(self, state: Mapping[str, Any], used: Sequence[Sequence[GroupRef]]) -> None:
        if not {"clock", "flying"} <= state.keys():
            raise self._other_delay("")
        saved = checked(_STATE, state, "the state of the checkpoint", CURE)
        self._generated, self._trained = saved.generated, saved.trained
        rewarded = {batch: set(groups) for batch, _, groups in saved.flying}
        try:
            self._clock.load_flight_state(saved.clock)
        except (KeyError, TypeError, ValueError) as error:
            raise self._other_delay(f" ({error})" if isinstance(error, ValueError) else "") from error
        if rewarded.keys() != self._flying.keys() or len(self._clock.starts) != len(used):
            raise DataError("the checkpoint's rows in flight, its state and used.jsonl disagree; restore them from a copy")
        self._store.set_aside_batches(self._flying.keys())  # what later versions made of them did not happen
        for one in self._flying.values():
            one.asked_P, one.rewarded = self._maker.asked(one.batch), rewarded[one.batch]
            if [group[0].problem_id for group in one.rows_PG] != [asked.problem.problem_id for asked in one.asked_P]:
                raise DataError(
                    f"batch {one.batch} in flight asks other problems than the run does now; give the same problems"
                )
        self._stored = {stored.batch: stored for stored in self._store.list()}
        missing = {group.batch for groups in used for group in groups} - self._stored.keys() - self._flying.keys()
        if missing:
            raise self._store.missing(min(missing))

    def _other_delay(self, why: str) -> DataError:
        return DataError(
            f"the checkpoint was made under another delay than --delay {self._spec}{why}; resume with the delay that the run "
            "was started with"
        )

    def _begin(self) -> None:
        """Start from an empty folder: what a run made that was killed before its first checkpoint is set aside."""
        own = [stored.batch for stored in self._store.list() if not read_metadata(stored.path).weights_hash]
        if moved := self._store.set_aside_batches(own):
            log.info("set aside %d rollout batches of a run that has no checkpoint, which are sampled again", len(moved))
        if existing := self._store.list():
            raise UsageError(
                f"{existing[0].path}: --delay {self._spec} samples every response itself, by all versions that stand by then, "
                "and cannot begin from rollouts; use a new --run, without --rollouts"
            )

    def _advance(self, update: int, until: float, progress: Progress | None) -> None:
        """Launch the batches that are due before `until`, and sample all tokens that begin before it."""
        clock = self._clock
        while (batch := clock.next_launch(update)) is not None and batch < until:
            clock.begin(batch, update)
            self._flying[batch] = flying.launch(self._maker, batch, update)
        most = self._maker.settings.rollout.max_tokens
        batches = list(self._flying.values())
        before = {one.batch: set(one.finished()) for one in batches}
        flying.extend(self._maker, batches, [clock.tokens_before(one.batch, until, most) for one in batches], update, progress)
        self._report_ready(before)

    def _report_ready(self, before: Mapping[int, set[int]]) -> None:
        """Tell the clock which groups are finished now and were not before."""
        for batch, finished in before.items():
            for group in self._flying[batch].finished():
                if group not in finished:
                    self._ready(self._flying[batch], group)

    def _ready(self, one: FlyingBatch, group: int) -> None:
        lengths = [len(row.response_token_ids) for row in one.rows_PG[group]]
        at = self._clock.ready(GroupRef(one.batch, group), max(lengths))
        self._generated.add(lengths)
        for row in one.rows_PG[group]:
            row.launched_at, row.ready_at = float(one.batch), at

    def _finish(self, one: FlyingBatch, version: int) -> None:
        """Reward what is finished, and write the batch when all of it is."""
        flying.reward(self._maker, one, version)
        if not one.is_whole:
            return
        path = self._store.path_for(one.batch, one.version)
        rows = [replace(row, token_versions=flying.versions_of(row)) for row in one.rows]
        write_shard(path, rows, replace(self._maker.metadata(version), weights_hash=""))  # several policies made it
        self._stored[one.batch] = StoredShard(one.batch, one.version, path)
        del self._flying[one.batch]

    def _group(self, reference: GroupRef) -> list[Rollout]:
        one = self._flying.get(reference.batch)
        if one is not None:
            return [replace(row, token_versions=flying.versions_of(row)) for row in one.rows_PG[reference.group]]
        if reference.batch not in self._stored:
            raise self._store.missing(reference.batch)
        return self._reader.group(self._stored[reference.batch], reference.group)
