"""`ramp` and `block`: staleness in steady state, against their definitions written out."""

from collections import Counter

import pytest
from delay_drives import varied

from gmc.delays.base import GroupRef
from gmc.delays.registry import parse_delay
from gmc.errors import UsageError
from gmc.testing.delays import drive

pytestmark = pytest.mark.unit

P = 4


def run_of(spec, updates):
    model = parse_delay(spec, prompts=P, group_size=2, seed=3, updates=updates)
    run = drive(model, updates, varied())
    assert run.taken == [[GroupRef(update, group) for group in range(P)] for update in range(updates)]
    return run


def delays_of(spec, updates):
    """The delay of each update, which all its groups share."""
    found = run_of(spec, updates).delays
    assert all(len(set(groups)) == 1 for groups in found)
    return [groups[0] for groups in found]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ramp:3", [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3]),
        ("ramp:2:4", [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]),
        ("ramp:0", [0] * 12),
        ("ramp:100", [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        ("block:4", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]),
        ("block:5", [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]),
        ("block:4:1", [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]),
        ("block:3:2", [0, 1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8]),
        ("block:1", [0] * 12),
        ("block:1:2", [0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
        ("block:100", list(range(12))),
    ],
)
def test_the_delay_of_each_update(spec, expected):
    assert delays_of(spec, 12) == expected


@pytest.mark.parametrize(("delay", "rise"), [(1, 2), (5, 2), (5, 3), (64, 2), (64, 7)])
def test_a_ramp_never_uses_a_version_more_than_twice_and_once_when_it_is_up(delay, rise):
    updates = rise * delay + 20
    spec = f"ramp:{delay}" if rise == 2 else f"ramp:{delay}:{rise}"
    assert delays_of(spec, updates) == [min(delay, update // rise) for update in range(updates)]
    uses = Counter(version for _, version in run_of(spec, updates).launches)
    top = rise * delay - delay  # the version of update R·D, the first at delay D, and of the update before it
    assert sum(uses[version] for version in range(top + 1)) == rise * delay + 1
    assert max(uses.values()) == 2
    assert all(uses[version] == 1 for version in range(top + 1, max(uses) + 1))
    assert uses[0] == 1


def test_version_0_of_a_ramp_serves_one_update_and_of_a_fixed_delay_all_up_to_d():
    shares = {}
    for spec in ("64", "ramp:64", "ramp:64:3"):
        versions = [version for _, version in run_of(spec, 400).launches]
        shares[spec] = versions.count(0)
    assert shares == {"64": 65, "ramp:64": 1, "ramp:64:3": 1}


@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_block_makes_its_batches_from_the_version_it_starts_with(size):
    assert run_of(f"block:{size}", 40).launches == [(batch, batch // size * size) for batch in range(40)]


@pytest.mark.parametrize("spec", ["ramp:0", "ramp:0:9", "block:1", "block:1:0"])
def test_no_delay_is_synchronous_training_however_it_is_asked_for(spec):
    assert run_of(spec, 12) == run_of("0", 12)


def test_a_block_of_one_is_the_fixed_delay():
    assert run_of("block:1:5", 30) == run_of("5", 30)


@pytest.mark.parametrize(("spec", "first"), [("ramp:9", 1), ("ramp:9:3", 1), ("ramp:0", 1), ("block:5", 5), ("block:5:2", 15)])
def test_what_version_0_launches_is_known_ahead(spec, first):
    assert parse_delay(spec, prompts=P, group_size=2, seed=0, updates=50).first_launches == first
    assert parse_delay(spec, prompts=P, group_size=2, seed=0, updates=1).first_launches == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("ramp:64:1", "R = 1 is the fixed delay, where version 0 serves the first D \\+ 1 updates: --delay 64;"),
        ("ramp:64:0", "a delay that rises every 0 updates is no delay; R is at least 2;"),
        ("ramp", "it takes 1 to 2 values, not 0"),
        ("ramp:1:2:3", "it takes 1 to 2 values, not 3"),
        ("ramp:-1", "the delay is -1, outside 0 to"),
        ("ramp:3:2.5", "the updates for each rise is 2.5, not a whole number of updates"),
        ("block:0", "a block of 0 updates trains on nothing; S is at least 1"),
        ("block:4:0.5", "the delay in blocks is 0.5, not a whole number of blocks"),
        ("block", "it takes 1 to 2 values, not 0"),
    ],
)
def test_a_bad_spec_says_what_is_wrong(spec, reason):
    with pytest.raises(UsageError, match=rf"^--delay {spec}: {reason}"):
        run_of(spec, 5)
