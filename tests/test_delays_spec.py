"""`--delay SPEC` and `--delay shards`: what is understood, and what is refused with examples."""

import subprocess
import sys

import pytest

from gmc.delays.arguments import Arguments
from gmc.delays.base import DelayContext, GroupRef, ShardContents
from gmc.delays.drawn import GeometricDelay, LognormalDelay, UniformDelay
from gmc.delays.fixed import FixedDelay
from gmc.delays.length import CalibratedLengthDelay, LengthDelay
from gmc.delays.registry import EXAMPLES, arguments_of, delay_class, list_delays, parse_delay
from gmc.delays.shards import ShardsDelay
from gmc.errors import UsageError


def parse(spec, **changes):
    return parse_delay(spec, **{"prompts": 4, "group_size": 2, "seed": 0, "updates": 400, **changes})


@pytest.mark.unit
@pytest.mark.parametrize(
    ("spec", "kind", "model"),
    [
        ("0", "fixed", FixedDelay),
        ("256", "fixed", FixedDelay),
        ("uniform:0:64", "uniform", UniformDelay),
        ("geometric:32", "geometric", GeometricDelay),
        ("lognormal:32:0.6", "lognormal", LognormalDelay),
        ("length:28", "length", LengthDelay),
        ("length:28:group=mean", "length", LengthDelay),
        ("length:28:group=slowest", "length", LengthDelay),
        ("length:group=mean:28", "length", LengthDelay),
        ("length:mean=160", "length", CalibratedLengthDelay),
        ("length:mean=160:group=mean", "length", CalibratedLengthDelay),
    ],
)
def test_every_family_is_understood(spec, kind, model):
    assert delay_class(spec).name == kind
    assert type(parse(spec)) is model


@pytest.mark.unit
def test_every_example_is_understood():
    built_in = [plugin.cls for plugin in list_delays() if plugin.distribution.startswith("gmc-rl ")]
    assert {delay.name for delay in built_in} >= {
        "fixed",
        "ramp",
        "block",
        "shards",
        "uniform",
        "geometric",
        "lognormal",
        "length",
        "schedule",
    }
    for delay in built_in:
        assert all(delay_class(spec) is delay for spec in delay.examples)
    for spec in EXAMPLES.split(", "):
        parse(spec)


@pytest.mark.unit
@pytest.mark.parametrize(
    "spec",
    [
        *("", "-5", "-1", "2.5", "nan", "inf", "1e9", "9999999", "five", "fixed", "0x10"),
        *("uniform", "uniform:3", "uniform:5:2", "uniform:-1:4", "uniform:1.5:4", "uniform:1:2:3", "uniform:a:b"),
        *(
            "ramp",
            "ramp:",
            "ramp:x",
            "ramp:8:1",
            "ramp:8:2:3",
            "block",
            "block:0",
            "block:4:x",
            "block:4:1:1",
            "reuse",
            "reuse:0",
            "reuse:2:2",
        ),
        *("geometric", "geometric:-1", "geometric:1:2", "geometric:inf"),
        *("lognormal:3", "lognormal:0:1", "lognormal:3:-1", "lognormal:3:9", "lognormal:nan:1"),
        *("length", "length:", "length:x", "length:-28", "length:28:29", "length:28:mean=3", "length:mean=", "length:mean=-4"),
        *("length:group=mean", "length:28:group=max", "length:28:group", "length:28:goup=mean"),
        *("schedule", "schedule:", "shards:3"),
    ],
)
def test_a_bad_spec_is_refused_by_name_with_examples(spec):
    with pytest.raises(UsageError) as error:
        parse(spec)
    message = str(error.value)
    assert message.startswith(f"--delay {spec}: ")
    assert any(f"{example}" in message for example in ("for example ", "Examples: 0, 256"))
    assert "\n" not in message


@pytest.mark.unit
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("geometric", "it takes 1 value, not 0"),
        ("geometric:1:2", "it takes 1 value, not 2"),
        ("uniform:3", "it takes 2 values, not 1"),
        ("shards:3", "it takes no values"),
        ("1000001", "outside 0 to 1,000,000"),
        ("2.5", "not a whole number of updates"),
    ],
)
def test_the_refusal_says_what_is_wrong(spec, reason):
    with pytest.raises(UsageError, match=rf"^--delay {spec}: [^;]*{reason}; for example"):
        parse(spec)


@pytest.mark.unit
def test_the_largest_delay_is_a_million():
    assert Arguments.of("1000000", "fixed", ["8"]).whole("1000000", "the delay") == 1_000_000
    assert Arguments.of("0", "fixed", ["8"]).number("0", "the delay") == 0


@pytest.mark.unit
def test_shards_are_used_in_order_at_their_true_age():
    shards = [ShardContents(1, 0, 3), ShardContents(0, 0, 2), ShardContents(2, 1, 3)]
    delays = ShardsDelay(shards, prompts=2, updates=4)
    taken = []
    for update in range(4):
        assert delays.next_launch(update) is None
        taken.append(delays.take(update))
    refs = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert [ref for groups in taken for ref in groups] == [GroupRef(*ref) for ref in refs]
    assert delays.waiting == 0


@pytest.mark.unit
def test_shards_that_do_not_serve_the_run_are_refused():
    with pytest.raises(UsageError, match="3 updates of 2 groups need 6 groups, and the 2 shards hold 5; lower --updates to 2"):
        ShardsDelay([ShardContents(0, 0, 2), ShardContents(1, 0, 3)], prompts=2, updates=3)
    with pytest.raises(UsageError, match=r"use batch 1, which a later policy generated \(1 ahead\); .*--start-version"):
        ShardsDelay([ShardContents(0, 0, 2), ShardContents(1, 2, 2)], prompts=2, updates=2)
    ShardsDelay([ShardContents(0, 0, 2), ShardContents(1, 2, 2)], prompts=2, updates=1)
    with pytest.raises(UsageError, match="the 0 shards hold 0"):
        parse("shards")


@pytest.mark.unit
def test_shards_last_for_as_many_updates_as_they_hold_whole_batches():
    context = DelayContext(3, 2, 0, 400, [ShardContents(0, 0, 4), ShardContents(1, 0, 4)])
    assert ShardsDelay.horizon(arguments_of("shards"), context) == 2


@pytest.mark.unit
def test_a_live_delay_is_live_takes_no_argument_and_has_no_model():
    live = delay_class("live")
    assert live.live
    live.check(arguments_of("live"), DelayContext(2, 2, 0, 4))
    with pytest.raises(UsageError, match="--delay live:3: "):
        live.check(arguments_of("live:3"), DelayContext(2, 2, 0, 4))
    with pytest.raises(UsageError, match="there is nothing to simulate"):
        parse("live")
    assert live.less_offline(arguments_of("live")).startswith("plan more --updates")


@pytest.mark.unit
def test_shards_generate_nothing():
    delays = ShardsDelay([ShardContents(0, 0, 2)], prompts=2, updates=1)
    with pytest.raises(ValueError, match="generates nothing"):
        delays.launched(1, 0, [[1], [1]])
    with pytest.raises(ValueError, match="update 0 is next, not 1"):
        delays.take(1)


@pytest.mark.process
def test_delays_and_simulator_import_no_torch():
    modules = "simulate, cluster, recorded, plots, theory"
    imports = f"import sys, gmc.delays.registry; from gmc.simulator import {modules}; import gmc.cli.simulate_run"
    program = f"{imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
