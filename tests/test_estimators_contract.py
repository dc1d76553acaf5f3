"""`check_estimator` passes every built-in rule and catches each way of breaking the contract."""

import pytest
import torch
from pydantic import ConfigDict, Field

from gmc.estimators.base import Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Need
from gmc.estimators.grpo import GRPO
from gmc.estimators.registry import list_estimators
from gmc.testing import check_estimator
from gmc.testing.contract import CHECKS

pytestmark = pytest.mark.unit


class Plain(Estimator):
    """A rule that keeps the contract: REINFORCE with token ratios up to 2."""

    name = "plain"
    summary = "one line"
    formula = "min{r, 2}·A"
    reference = "none"
    scope = "token"

    def objective(self, batch):
        weight_BT = batch.log_ratio_BT.detach().clamp(max=0.7).exp()
        return weight_BT * batch.advantages_B1 * batch.logp_BT


BUILT_IN = [found.estimator for found in list_estimators() if found.distribution.startswith("gmc-rl ")]
assert len(BUILT_IN) >= 10, "the built-in rules are not registered, so nothing would be tested: pip install -e ."


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.name)
def test_built_in_rules_keep_the_contract(rule):
    check_estimator(rule)


def test_a_correct_rule_passes():
    check_estimator(Plain)


def broken(**members):
    return type("Broken", (Plain,), members)


def _noise(self, batch):
    return batch.log_ratio_BT.detach().exp() * batch.advantages_B1 * batch.logp_BT


def _normalized_by_batch(self, batch):
    weight_BT = batch.log_ratio_BT.detach().clamp(max=0.7).exp()
    return weight_BT / weight_BT[batch.mask_BT].mean().clamp(min=1e-3) * batch.advantages_B1 * batch.logp_BT


def _by_row_number(self, batch):
    rows = 1 + torch.arange(batch.logp_BT.shape[0])[:, None] % 3
    return rows * batch.advantages_B1 * batch.logp_BT + 0 * batch.log_ratio_BT


def _reads_padding(self, batch):
    return batch.behavior_logp_BT.mean(1, keepdim=True) * batch.advantages_B1 * batch.logp_BT


def _reads_lags(self, batch):
    return batch.log_ratio_BT.exp() * batch.advantages_B1 / (1 + batch.lag_BT)


def _sequence_weight(self, batch):
    return batch.log_rho_B.detach().clamp(max=0.7).exp()[:, None] * batch.advantages_B1 * batch.logp_BT


def _per_shortest(self, batch):
    shortest_P1 = batch.lengths_B.reshape(batch.groups, -1).amin(1, keepdim=True)
    return (batch.advantages_PG / shortest_P1).reshape(-1, 1) * batch.logp_BT + 0 * batch.log_ratio_BT


class Forgetful(Plain):
    """Keeps a running count in its weights but not in its state."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.calls = 0

    def objective(self, batch):
        self.calls += 1
        return super().objective(batch) / self.calls


class _Loose(EstimatorSettings):
    model_config = ConfigDict(extra="ignore")
    level: float = Field(1.0, description="a number")


class _Undescribed(EstimatorSettings):
    level: float = 1.0


def test_a_metric_that_is_not_finite_is_caught():
    with pytest.raises(AssertionError, match="metrics: "):
        check_estimator(broken(metrics=lambda self, batch: {"loss": float("nan")}))


FAULTS = [
    (broken(name="Not A Name"), "declarations: name"),
    (broken(summary=""), "declarations: summary"),
    (broken(summary="two\nlines"), "declarations: summary"),
    (broken(scope="galaxy"), "declarations: scope"),
    (broken(Settings=_Loose), "settings: an unknown setting is accepted"),
    (broken(Settings=_Undescribed), "settings: setting level has no description"),
    (broken(objective=_reads_lags), "needs: the rule reads version lags"),
    (broken(needs=frozenset({Need.BEHAVIOR_LOGP, Need.SCORE_NORMS})), "needs: it declares ['SCORE_NORMS'] but never"),
    (broken(on_policy_weight=0.5), "on-policy weight: "),
    (broken(objective=_sequence_weight), "scope: a weight depends on values outside its own token"),
    (broken(objective=_normalized_by_batch), "scope: a weight depends on values outside its own"),
    (broken(objective=_normalized_by_batch), "micro-batch split: "),
    (broken(objective=_reads_padding), "padding: "),
    (broken(objective=_by_row_number), "row order: "),
    (broken(objective=_by_row_number), "group order: "),
    (broken(objective=_noise), "extreme ratios: log-ratios of ±800 give a gradient that is not finite"),
    (type("Broken", (GRPO,), {"bounded": True}), "extreme ratios: a weight reaches"),
    (broken(objective=_per_shortest, scope="group"), "empty responses: "),
    (broken(advantages=lambda self, batch: batch.rewards_PG), "equal rewards: "),
    (broken(advantages=lambda self, batch: batch.rewards_PG - batch.rewards_PG.mean()), "scope: "),
    (Forgetful, "state: after a resume"),
    (broken(load_state_dict=lambda self, state: None), "state: load_state_dict accepts"),
    (broken(metrics=lambda self, batch: {"a/b": 1.0}), "metrics: metric 'a/b' contains a slash"),
    (broken(objective=lambda self, batch: batch.nothing), "needs: AttributeError"),
]


@pytest.mark.parametrize(("rule", "finding"), FAULTS)
def test_each_way_of_breaking_the_contract_is_named(rule, finding):
    with pytest.raises(AssertionError) as caught:
        check_estimator(rule)
    assert finding in str(caught.value)


def test_every_check_has_a_rule_that_fails_it():
    assert {finding.partition(":")[0] for _, finding in FAULTS} == set(CHECKS)


def test_every_failure_is_listed_at_once():
    with pytest.raises(AssertionError) as caught:
        check_estimator(broken(summary="", on_policy_weight=3.0))
    assert "declarations: " in str(caught.value)
    assert "on-policy weight: " in str(caught.value)


def test_declaring_that_equal_rewards_do_not_vanish_is_respected():
    check_estimator(broken(advantages=lambda self, batch: batch.rewards_PG, equal_rewards_vanish=False))


def test_advantages_of_equal_rewards_are_exactly_zero_however_they_round():
    rewards = torch.full((1, 7), 0.1)
    assert not group_centered(rewards).any()
