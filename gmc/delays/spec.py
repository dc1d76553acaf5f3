"""`--delay SPEC`: from text to a delay model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn, cast

from gmc.delays.base import DelayModel
from gmc.delays.calibration import CalibratedClockDelay
from gmc.delays.clock import ClockDelay
from gmc.delays.durations import (
    Duration,
    GeometricDuration,
    GroupRule,
    LengthDuration,
    LognormalDuration,
    UniformDuration,
)
from gmc.delays.fixed import FixedDelay
from gmc.delays.replay import ScheduleDelay
from gmc.delays.schedule import read_schedule
from gmc.delays.shards import ShardContents, ShardsDelay
from gmc.errors import UsageError

DelayKind = Literal["fixed", "shards", "uniform", "geometric", "lognormal", "length", "schedule"]

EXAMPLES = (
    "0, 256, uniform:0:64, geometric:32, lognormal:32:0.6, length:28, length:28:group=mean, length:mean=160, "
    "schedule:FILE, shards"
)
LARGEST_DELAY = 1_000_000


def delay_spec_kind(spec: str) -> DelayKind:
    """Which family a delay spec belongs to, without reading files; raises `UsageError` with examples when it is none.

    >>> delay_spec_kind("256"), delay_spec_kind("length:mean=160")
    ('fixed', 'length')
    """
    name = spec.partition(":")[0]
    if name in ("shards", "uniform", "geometric", "lognormal", "length", "schedule"):
        return cast(DelayKind, name)
    if name.lstrip("+-").replace(".", "", 1).isdigit():
        return "fixed"
    _refuse(spec, "no such delay")


def parse_delay(
    spec: str,
    *,
    prompts: int,
    group_size: int,
    seed: int,
    updates: int,
    shards: Sequence[ShardContents] = (),
    calibrated_clock: float | None = None,
) -> DelayModel:
    """The delay model that `spec` describes.

    prompts, group_size: P and G; updates: planned number of updates; shards: what is on disk before the first update,
    needed by `shards`, and checked by `schedule:FILE`; calibrated_clock: what an earlier model of the same run found, so that a
    resumed run with other planned updates keeps it. Raises `UsageError` naming the spec, with examples, for a bad one.
    """
    kind = delay_spec_kind(spec)
    if kind == "shards":
        if spec != "shards":
            _refuse(spec, "shards takes no value")
        return ShardsDelay(shards, prompts=prompts, updates=updates)
    if kind == "fixed":
        return FixedDelay(_whole(spec, spec, "the delay"), prompts=prompts, updates=updates)
    if kind == "schedule":
        path = Path(spec.partition(":")[2])
        if not path.name:
            _refuse(spec, "schedule needs a file")
        rows, _ = read_schedule(path)
        on_disk = {shard.batch: shard.policy_version for shard in shards}
        return ScheduleDelay(rows, path, prompts=prompts, updates=updates, on_disk=on_disk)
    if kind == "length":
        return _length(spec, prompts=prompts, updates=updates, seed=seed, known_clock=calibrated_clock)
    return ClockDelay(_random(spec, kind, seed), prompts=prompts, updates=updates)


def _random(spec: str, kind: str, seed: int) -> Duration:
    values = spec.split(":")[1:]
    makers: dict[str, tuple[int, Callable[[], Duration]]] = {
        "uniform": (2, lambda: _uniform(spec, *values, seed=seed)),
        "geometric": (1, lambda: GeometricDuration(_number(spec, values[0], "the mean"), seed=seed)),
        "lognormal": (2, lambda: _lognormal(spec, *values, seed=seed)),
    }
    wanted, make = makers[kind]
    if len(values) != wanted:
        _refuse(spec, f"{kind} takes {wanted} value{'s' if wanted > 1 else ''}, not {len(values)}")
    return make()


def _uniform(spec: str, low_text: str, high_text: str, *, seed: int) -> Duration:
    low, high = _whole(spec, low_text, "the lowest delay"), _whole(spec, high_text, "the highest delay")
    if low > high:
        _refuse(spec, f"the lowest delay {low} is above the highest {high}")
    return UniformDuration(low, high, seed=seed)


def _lognormal(spec: str, mean_text: str, sigma_text: str, *, seed: int) -> Duration:
    mean, sigma = _number(spec, mean_text, "the mean"), _number(spec, sigma_text, "sigma")
    if mean == 0:
        _refuse(spec, "the mean of a lognormal is above 0")
    if sigma > 5:
        _refuse(spec, f"sigma is {sigma:g}; it is the standard deviation of the logarithm, at most 5")
    return LognormalDuration(mean, sigma, seed=seed)


def _length(spec: str, *, prompts: int, updates: int, seed: int, known_clock: float | None) -> DelayModel:
    group_rule: GroupRule = "slowest"
    clock: float | None = None
    mean: float | None = None
    for part in spec.split(":")[1:]:
        key, equals, value = part.partition("=")
        if key == "group" and value in ("mean", "slowest"):
            group_rule = cast(GroupRule, value)
        elif key == "mean" and equals and mean is clock is None:
            mean = _number(spec, value, "the mean delay")
        elif not equals and mean is clock is None:
            clock = _number(spec, part, "the clock")
        else:
            _refuse(spec, f"cannot read {part!r}; length takes C or mean=M, then group=mean or group=slowest")
    if clock is not None:
        return ClockDelay(LengthDuration(clock, group_rule), prompts=prompts, updates=updates)
    if mean is None:
        _refuse(spec, "length needs a clock C (updates per 100 tokens) or mean=M")
    if mean == 0:
        return ClockDelay(LengthDuration(0.0, group_rule), prompts=prompts, updates=updates)
    return CalibratedClockDelay(mean, group_rule, prompts=prompts, updates=updates, seed=seed, clock=known_clock)


def _number(spec: str, text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        _refuse(spec, f"{what} is {text!r}, not a number")
    if not 0 <= value <= LARGEST_DELAY:
        _refuse(spec, f"{what} is {text}, outside 0 to {LARGEST_DELAY:,}")
    return value


def _whole(spec: str, text: str, what: str) -> int:
    value = _number(spec, text, what)
    if value != int(value):
        _refuse(spec, f"{what} is {text}, not a whole number of updates")
    return int(value)


def _refuse(spec: str, reason: str) -> NoReturn:
    raise UsageError(f"--delay {spec}: {reason}; examples: {EXAMPLES}")
