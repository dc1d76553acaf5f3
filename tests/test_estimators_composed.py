"""gac: the three regimes, both projections, what is stored, what survives a resume."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gmc.estimators.gradient import SKIP, Gradient
from gmc.estimators.registry import build_estimator
from gmc.store.checkpoints import Checkpoint
from gmc.testing import check_estimator, random_batch, run_stages
from gmc.training.anchors import Anchors
from gmc.training.restoring import restore
from gmc.training.saved_state import prefixed

pytestmark = pytest.mark.unit

C_LOW, C_HIGH = 0.05, 0.3


def flat(gradient):
    return torch.cat([tensor.reshape(-1) for tensor in gradient.tensors])


def split(vector):
    return Gradient([vector[:3].clone(), vector[3:].reshape(2, -1).clone()])


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def pair(target):
    """Two vectors of different length with a given cosine."""
    draw = torch.Generator().manual_seed(int(1000 * abs(target)))
    first = torch.randn(7, generator=draw, dtype=torch.float64)
    other = torch.randn(7, generator=draw, dtype=torch.float64)
    unit = first / first.norm()
    orthogonal = other - (other @ unit) * unit
    orthogonal = orthogonal / orthogonal.norm()
    return first, 2.7 * (target * unit + math.sqrt(1 - target**2) * orthogonal)


def second_of(rule, first, second):
    assert torch.equal(flat(rule.gradient(split(first))), first), "the first update has nothing to compare with"
    return rule.gradient(split(second))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("projection", ["full", "shrink"])
@pytest.mark.parametrize("size", [0.0, 0.02, 0.0499, 0.0501, 0.1, 0.2999, 0.3001, 0.8, 1.0])
def test_each_regime(size, sign, projection):
    first, second = pair(sign * size)
    rule = build_estimator("gac", {"projection": projection})
    result = second_of(rule, first, second)
    assert rule.metrics(random_batch(seed=0))["cosine"] == pytest.approx(sign * size, abs=1e-12)
    if size <= C_LOW:
        assert torch.equal(flat(result), second)
    elif size >= C_HIGH:
        assert result is SKIP
    else:
        expected = 0.0 if projection == "full" else sign * C_LOW
        assert cosine(flat(result), first) == pytest.approx(expected, abs=1e-12)
        unit = first / first.norm()
        perpendicular = second - (second @ unit) * unit
        after = flat(result) - (flat(result) @ unit) * unit
        torch.testing.assert_close(after, perpendicular, rtol=1e-10, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.051, 0.299), st.floats(0.01, 1000.0))
def test_projection_does_not_depend_on_the_length_of_the_previous_gradient(size, scale):
    first, second = pair(size)
    results = [flat(second_of(build_estimator("gac"), first * factor, second)) for factor in (1.0, scale)]
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)


def test_the_raw_gradient_is_stored_after_a_projection_and_after_a_skip():
    for size in (0.2, 0.9):
        first, second = pair(size)
        rule = build_estimator("gac")
        second_of(rule, first, second)
        assert torch.equal(torch.cat([t.reshape(-1) for k, t in rule.state_dict().items() if k.startswith("previous")]), second)


def test_skips_are_counted_in_total_and_in_a_row():
    rule = build_estimator("gac")
    direction = torch.ones(7, dtype=torch.float64)
    orthogonal = torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0], dtype=torch.float64)
    outcomes = [rule.gradient(split(vector)) for vector in (direction, direction, direction, orthogonal, orthogonal)]
    assert [outcome is SKIP for outcome in outcomes] == [False, True, True, False, True]
    metrics = rule.metrics(random_batch(seed=0))
    assert metrics["skip_rate"] == pytest.approx(3 / 5)
    assert metrics["consecutive_skips"] == 1


def test_later_accumulation_into_the_same_tensors_does_not_change_the_stored_gradient():
    first, second = pair(0.9)
    rule = build_estimator("gac")
    gradient = split(first)
    rule.gradient(gradient)
    for tensor in gradient.tensors:
        tensor.zero_()
    assert rule.gradient(split(second)) is SKIP


def test_a_zero_gradient_is_kept_and_forgets_nothing():
    first, second = pair(0.9)
    rule = build_estimator("gac")
    rule.gradient(split(first))
    kept = rule.gradient(split(torch.zeros(7, dtype=torch.float64)))
    assert not flat(kept).any()
    assert rule.gradient(split(second)) is SKIP


def test_state_survives_a_resume():
    first, second = pair(0.9)
    rule = build_estimator("gac", {"base": {"name": "gmc", "epsilon": "auto"}})
    run_stages(rule, random_batch(seed=0, update=0))
    second_of(rule, first, second)
    resumed = build_estimator("gac", {"base": {"name": "gmc", "epsilon": "auto"}})
    resumed.load_state_dict(rule.state_dict())
    assert resumed.gradient(split(second)) is SKIP
    batch = random_batch(seed=1, update=1)
    rule.gradient(split(second))
    assert run_stages(resumed, batch).metrics == run_stages(rule, batch).metrics
    assert resumed.metrics(batch)["consecutive_skips"] == 2


@pytest.mark.parametrize("base", ["grpo", "gmc", "vcpo", "a3po", "decoupled-ppo", "is"])
def test_gac_hands_everything_but_the_gradient_to_its_base(base):
    settings_of_base = {"name": base}
    batch = random_batch(seed=2)
    plain, wrapped = build_estimator(base), build_estimator("gac", {"base": settings_of_base})
    expected, actual = run_stages(plain, batch), run_stages(wrapped, batch)
    assert torch.equal(actual.gradient_BT, expected.gradient_BT)
    assert actual.learning_rate_scale == expected.learning_rate_scale
    assert {f"base_{key}": value for key, value in expected.metrics.items()}.items() <= actual.metrics.items()
    for attribute in ("scope", "needs", "bounded", "normalizer", "anchor_lag", "on_policy_weight"):
        assert getattr(wrapped, attribute) == getattr(plain, attribute)
    check_estimator(type(wrapped), {"base": settings_of_base})


def test_rules_compose_twice():
    rule = build_estimator("gac", {"base": {"name": "gac", "base": {"name": "gmc", "epsilon": 0.5}}})
    assert rule.base.base.settings.epsilon == 0.5
    first, second = pair(0.9)
    assert second_of(rule, first, second) is SKIP


def test_a_resumed_rule_keeps_its_gradient_on_the_device_of_those_to_come():
    """A checkpoint is read into the host's memory; numbers are read there, which a tensor without values would refuse."""
    saved, resumed = build_estimator("gac", {}), build_estimator("gac", {})
    for vector in pair(0.1):
        saved.gradient(split(vector))
    checkpoint = Checkpoint(2, {}, {}, prefixed("rule.", saved.state_dict()), {}, Path("u000002"))
    network = torch.nn.Linear(1, 1)
    updater = SimpleNamespace(
        model=SimpleNamespace(device=torch.device("meta"), source="here"),
        parameters=SimpleNamespace(own={}, tensors=[], finite=lambda tensors: True),
        optimizer=torch.optim.AdamW(network.parameters()),
        estimator=resumed,
        anchors=Anchors(SimpleNamespace(own={}), 0),
    )
    restore(checkpoint, updater)
    assert [tensor.device.type for tensor in resumed._previous] == ["meta", "meta"]
    assert resumed._counts == saved._counts
