"""`check_delay`: everything a delay model must satisfy, in one call."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gmc.delays.base import Arguments, DelayContext, DelayModel, GroupRef, GroupTimes, ShardContents
from gmc.errors import GmcError
from gmc.testing.contract import run_checks

Lengths = Callable[[int], list[list[int]]]
"""The response lengths (tokens) of a launch batch: lengths_PG."""


@dataclass
class Drive:
    """Everything a model decided. launches: (batch, policy version); taken, waiting: by update; times: of every group."""

    launches: list[tuple[int, int]] = field(default_factory=list)
    taken: list[list[GroupRef]] = field(default_factory=list)
    times: dict[GroupRef, GroupTimes] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    @property
    def versions(self) -> dict[int, int]:
        """The policy version of each batch."""
        return dict(self.launches)

    @property
    def delays(self) -> list[list[int]]:
        """The delay of each group that was used, by update."""
        return [[update - self.versions[ref.batch] for ref in groups] for update, groups in enumerate(self.taken)]


def drive(model: DelayModel, updates: int, lengths: Lengths) -> Drive:
    """Drive a model through `updates` updates the way training does."""
    record = Drive()
    if model.calibration_batches:
        model.calibrate([lengths(batch) for batch in range(model.calibration_batches)])
    for update in range(updates):
        while (batch := model.next_launch(update)) is not None:
            times = model.launched(batch, update, lengths(batch))
            record.launches.append((batch, update))
            record.times |= {GroupRef(batch, group): value for group, value in enumerate(times)}
        record.taken.append(model.take(update))
        record.waiting.append(model.waiting)
    return record


@dataclass(frozen=True)
class _Subject:
    delay: type[DelayModel]
    spec: str
    context: DelayContext

    def fresh(self, updates: int | None = None) -> DelayModel:
        context = self.context
        if updates is not None:
            context = DelayContext(context.prompts, context.group_size, context.seed, updates, context.shards)
        return self.delay.parse(Arguments.of(self.spec, self.delay.name, self.delay.examples), context)

    def lengths(self, batch: int) -> list[list[int]]:
        """Lengths that differ by batch, group and sample, from plain arithmetic."""
        return [
            [1 + (batch * 37 + group * 101 + sample * 53) % 400 for sample in range(self.context.group_size)]
            for group in range(self.context.prompts)
        ]

    def drive(self, model: DelayModel | None = None) -> Drive:
        return drive(self.fresh() if model is None else model, self.context.updates, self.lengths)


def check_delay(
    delay: type[DelayModel],
    spec: str,
    *,
    prompts: int = 4,
    group_size: int = 2,
    updates: int = 40,
    seed: int = 0,
    shards: Sequence[ShardContents] = (),
) -> None:
    """Check a delay model against the contract of `gmc.delays.base`, in milliseconds, as `spec` makes it for one run.

    It checks: the declarations; that bad arguments are refused; that every group is used by at most `uses` updates, P an
    update, none of a later version than the update starts from, and launched · uses = trained + waiting; that times are
    ordered; that a model in flight, and no other, has a clock for it; that it decides the same again; and that a model that
    takes over another's state goes on like it, also when more updates are planned.

    prompts, group_size: P and G; shards: what is on disk, for a model that needs it. Raises `AssertionError` listing every
    check that failed.
    """
    subject = _Subject(delay, spec, DelayContext(prompts, group_size, seed, updates, shards))
    run_checks(CHECKS, subject, f"{getattr(delay, 'name', delay.__name__)} breaks the delay contract with {spec}")


def _declarations(subject: _Subject) -> None:
    delay = subject.delay
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", delay.name), f"name {delay.name!r} is not lower-case words and hyphens"
    for text in ("summary", "usage"):
        value = getattr(delay, text)
        assert value.strip(), f"{text} is empty"
        assert "\n" not in value, f"{text} has more than one line"
    assert delay.examples, "examples is empty"


def _arguments(subject: _Subject) -> None:
    delay = subject.delay
    delay.check(Arguments.of(subject.spec, delay.name, delay.examples), subject.context)
    bad = f"{delay.name}:?:?:?:?"
    try:
        delay.parse(Arguments.of(bad, delay.name, delay.examples), subject.context)
    except GmcError:
        return
    raise AssertionError(f"{bad} is accepted; refuse arguments that mean nothing with arguments.refuse(reason)")


def _conservation(subject: _Subject) -> None:
    run, prompts, uses = subject.drive(), subject.context.prompts, subject.fresh().uses
    batches = [batch for batch, _ in run.launches]
    assert len(batches) == len(set(batches)), "a batch is launched twice"
    existing = {GroupRef(shard.batch, group) for shard in subject.context.shards for group in range(shard.groups)}
    used: Counter[GroupRef] = Counter()
    for update, groups in enumerate(run.taken):
        assert len(groups) == prompts, f"update {update} takes {len(groups)} groups, not {prompts}"
        launched = {ref for ref in run.times if run.versions[ref.batch] <= update} if subject.delay.generates else existing
        unknown = set(groups) - launched
        assert not unknown, f"update {update} takes {min(unknown)}, which is not launched by then"
        again = {ref for ref in groups if used[ref] == uses or groups.count(ref) > 1}
        assert not again, f"update {update} takes {min(again)} once more"
        used.update(groups)
        left = len(launched) * uses - used.total()
        assert run.waiting[update] == left, f"after update {update} it says that {run.waiting[update]} groups wait, not {left}"


def _launches(subject: _Subject) -> None:
    run, model = subject.drive(), subject.fresh()
    for batch in run.versions:
        times = [run.times.get(GroupRef(batch, group)) for group in range(subject.context.prompts)]
        for found in times:
            assert found is not None, f"batch {batch} gets times for fewer than P groups"
            launched_at, ready_at = found
            ordered = launched_at is None or ready_at is None or launched_at <= ready_at
            assert ordered, f"batch {batch} has a group that is ready before it is launched: {found}"
    first = sum(version == 0 for _, version in run.launches)
    assert model.first_launches in (None, first), f"first_launches is {model.first_launches}, and {first} batches are launched"


def _in_flight(subject: _Subject) -> None:
    try:
        clock = subject.fresh().flight_clock()
    except ValueError:
        assert not subject.delay.in_flight, "it declares in_flight and has no flight_clock"
        return
    assert subject.delay.in_flight, "it has a flight_clock and does not declare in_flight"
    assert not clock.has_begun, "the clock of a new model has begun"


def _repeats(subject: _Subject) -> None:
    assert subject.drive() == subject.drive(), "two models of one seed decide differently for the same lengths"


def _state(subject: _Subject) -> None:
    whole, updates = subject.drive(), subject.context.updates
    for done in sorted({0, 1, updates // 2, updates}):
        original = subject.fresh()
        drive(original, done, subject.lengths)
        state = json.loads(json.dumps(original.state_dict(), allow_nan=False))
        resumed = subject.fresh()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == original.state_dict(), "state_dict differs after load_state_dict"
        assert subject.drive(resumed) == whole, f"after a resume at update {done} it decides otherwise"
    try:
        subject.fresh().load_state_dict({"no such state": 0})
    except ValueError:
        return
    raise AssertionError("load_state_dict accepts state that the model does not know")


def _longer(subject: _Subject) -> None:
    """With more updates planned, those that were made stay as they were."""
    if (
        subject.delay.horizon(Arguments.of(subject.spec, subject.delay.name, subject.delay.examples), subject.context)
        is not None
    ):
        return
    first = subject.fresh()
    whole = subject.drive(first)
    longer = subject.fresh(updates=2 * subject.context.updates)
    longer.load_state_dict(first.state_dict())
    assert subject.drive(longer).taken == whole.taken, "with more updates planned, the first ones take other groups"


CHECKS: dict[str, Callable[[_Subject], None]] = {
    "declarations": _declarations,
    "arguments": _arguments,
    "conservation": _conservation,
    "launches": _launches,
    "in flight": _in_flight,
    "determinism": _repeats,
    "state": _state,
    "more updates": _longer,
}
