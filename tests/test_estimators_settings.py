"""The ranges of every built-in rule's settings: their ends are allowed or not as the page of the rule says."""

import dataclasses
import math

import pytest
import torch

from gmc.estimators.batch import Need
from gmc.estimators.errors import EstimatorError
from gmc.estimators.registry import build_estimator
from gmc.testing import make_batch

pytestmark = pytest.mark.unit

LOWEST = 5e-324
ABOVE_MINUS_ONE = math.nextafter(-1.0, 0.0)
BELOW_ONE = math.nextafter(1.0, 0.0)
RANGES = [
    ("gmc", "epsilon", [ABOVE_MINUS_ONE, 0.0, 50.0, "auto"], [-1.0, -2.0]),
    ("tic", "epsilon", [0.0, 50.0, "auto"], [-LOWEST, -0.5]),
    ("truncated", "epsilon", [ABOVE_MINUS_ONE, 50.0], [-1.0]),
    ("group-truncated", "epsilon", [ABOVE_MINUS_ONE, 50.0], [-1.0]),
    ("gmc", "epsilon_k", [LOWEST, 9.0], [0.0]),
    ("token-gmc", "epsilon", [ABOVE_MINUS_ONE, 50.0], [-1.0]),
    ("decoupled-ppo", "epsilon", [LOWEST, BELOW_ONE], [0.0, 1.0]),
    ("decoupled-ppo", "anchor_lag", [1, 50], [0]),
    ("a3po", "epsilon", [LOWEST, BELOW_ONE], [0.0, 1.0]),
    ("a3po", "outer_cap", [1.0, 50.0, None], [BELOW_ONE]),
    ("grpo", "epsilon_low", [LOWEST, BELOW_ONE], [0.0, 1.0]),
    ("grpo", "epsilon_high", [LOWEST, 50.0], [0.0]),
    ("gac", "c_low", [0.0, 0.2], [-LOWEST]),
    ("gac", "c_high", [0.06, 1.0], [0.0, math.nextafter(1.0, 2.0)]),
    ("vcpo", "c", [1.0, 50.0], [BELOW_ONE]),
    ("vcpo", "base_ess", [LOWEST, 1.0], [0.0, math.nextafter(1.0, 2.0)]),
]
CASES = [(rule, name, value, True) for rule, name, good, _ in RANGES for value in good]
CASES += [(rule, name, value, False) for rule, name, _, bad in RANGES for value in bad]


@pytest.mark.parametrize(("rule", "name", "value", "allowed"), CASES)
def test_the_ends_of_each_range(rule, name, value, allowed):
    if allowed:
        assert getattr(build_estimator(rule, {name: value}).settings, name) == value
    else:
        with pytest.raises(EstimatorError, match=name):
            build_estimator(rule, {name: value})


def test_a_refused_value_is_explained_in_one_line():
    with pytest.raises(EstimatorError) as refused:
        build_estimator("vcpo", {"c": 0.5, "base_ess": 7})
    assert "c: 0.5 is not allowed; allowed: " in str(refused.value)
    assert "(trajectory ratios are truncated at c)" in str(refused.value)


def test_gac_needs_room_between_its_thresholds():
    for low, high in ((0.3, 0.3), (0.5, 0.3)):
        with pytest.raises(EstimatorError, match="c_low"):
            build_estimator("gac", {"c_low": low, "c_high": high})


def test_a_rule_cannot_change_its_batch_or_its_settings():
    batch = make_batch(torch.zeros(2, 3), torch.tensor([[0.0, 1.0]]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.update = 3
    for name in ("gmc", "gac"):
        with pytest.raises(ValueError, match="frozen"):
            build_estimator(name, {}).settings.epsilon = 3.0
    with pytest.raises(ValueError, match="frozen"):
        build_estimator("gac", {}).settings.base.name = "tic"


def test_what_a_batch_was_brought_is_read_under_its_name():
    batch = make_batch(torch.zeros(2, 3), torch.tensor([[0.0, 1.0]]))
    brought = {Need.BEHAVIOR_ENTROPY: torch.full((2, 3), 0.25), Need.LAGS: torch.full((2, 3), 2.0)}
    batch = dataclasses.replace(batch, brought=brought | {Need.PLANNED_UPDATES: torch.tensor(9)})
    assert batch.behavior_entropy_BT.tolist() == [[0.25] * 3] * 2
    assert batch.lag_BT.tolist() == [[2.0] * 3] * 2
    assert batch.planned_updates == 9
