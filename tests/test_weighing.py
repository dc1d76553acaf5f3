"""Rules that are asked group by group train as they do on whole batches, bit for bit, whatever they hold or claim."""

import logging
import threading

import pytest
import torch
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.estimators.base import Estimator
from gmc.estimators.gac import GAC
from gmc.estimators.gradient import Gradient
from gmc.estimators.registry import build_estimator
from gmc.gradients.weighing import Weighing, copied
from gmc.scoring.forward import Forward

SMALL = ["delay=2", "train.updates=4", "train.checkpoint_every=2", "train.tokens_per_micro_batch=200"]


class Counting(Estimator):
    """A rule with state, and with a weight that depends on the whole batch if `looks_around`."""

    name, summary, formula, reference = "counting", "ratio times advantage", "r A", "here"
    scope = "sequence"
    looks_around = False

    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []

    def objective(self, batch):
        self.calls += 1
        self.seen.append(batch.update)
        weight_BT = torch.exp(batch.log_rho_B.detach().clamp(max=1))[:, None] * batch.advantages_B1
        if self.looks_around:
            weight_BT = weight_BT * (1 + batch.log_rho_B.detach().mean())
        return weight_BT * batch.logp_BT

    def metrics(self, batch):
        return {"calls": float(self.calls)}

    def state_dict(self):
        return {"calls": torch.tensor(self.calls)}

    def load_state_dict(self, state):
        self.calls = int(state["calls"])


@pytest.fixture
def passed(monkeypatch):
    """How many updates had their gradient sent back in passing."""
    found = []
    has_passed = Forward.has_passed

    def recorded(self, grad_BT):
        result = has_passed(self, grad_BT)
        found.append(result)
        return result

    monkeypatch.setattr(Forward, "has_passed", recorded)
    return found


def trained(path, *assignments, rule=None):
    with pytest.MonkeyPatch.context() as patch:
        if rule is not None:
            patch.setattr("gmc.training.opening.build_rule", lambda settings: rule)
        train_run(path, small_settings(*SMALL, *assignments))
    return metrics_of(path), weights_of(path)


@pytest.mark.train
@pytest.mark.parametrize("name", ["gmc", "grpo", "vcpo", "gac"])
@pytest.mark.parametrize("normalizer", ["token-mean"])
def test_rules_train_as_on_whole_batches(tmp_path, monkeypatch, passed, name, normalizer):
    settings = [f"estimator.name={name}", f"train.normalizer={normalizer}"]
    found = trained(tmp_path / "parts", *settings)
    assert passed.count(True) >= 3, "the updates after the first are off-policy and go in one pass"
    monkeypatch.setattr(Weighing, "of", lambda *_: None)
    assert found == trained(tmp_path / "whole", *settings)


@pytest.mark.train
def test_a_rules_state_and_calls_are_those_of_whole_batches(tmp_path, passed):
    rule = Counting()
    metrics, _ = trained(tmp_path / "run", rule=rule)
    assert any(passed)
    assert rule.seen == [0, 1, 2, 3]
    assert [record["counting/calls"] for record in metrics] == [1, 2, 3, 4]


@pytest.mark.train
def test_a_rule_that_looks_further_than_it_says_trains_right_and_is_named(tmp_path, monkeypatch, caplog):
    rule = Counting()
    rule.looks_around = True
    with caplog.at_level(logging.WARNING):
        found = trained(tmp_path / "parts", rule=rule)
    [warning] = [record.getMessage() for record in caplog.records if "forward twice" in record.getMessage()]
    assert "estimator counting: its scope is 'sequence'" in warning
    monkeypatch.setattr(Weighing, "of", lambda *_: None)
    rule = Counting()
    rule.looks_around = True
    assert found == trained(tmp_path / "whole", rule=rule)


@pytest.mark.train
def test_a_rule_that_cannot_be_copied_sees_whole_batches(tmp_path, caplog, passed):
    rule = Counting()
    rule.lock = threading.Lock()
    with caplog.at_level(logging.WARNING):
        trained(tmp_path / "run", rule=rule)
    assert not any(passed)
    assert len([record for record in caplog.records if "cannot be copied (TypeError" in record.getMessage()]) == 1


@pytest.mark.unit
def test_a_copy_shares_what_is_as_large_as_the_model_and_nothing_else():
    rule = GAC()
    rule.gradient(Gradient([torch.ones(3)]))
    apart = copied(rule)
    assert apart._previous[0] is rule._previous[0]
    apart.gradient(Gradient([torch.zeros(3) + 2]))
    assert rule._counts["updates"] == 1
    assert torch.equal(rule._previous[0], torch.ones(3))
    assert apart.base is not rule.base


@pytest.mark.unit
def test_rules_of_batch_scope_are_never_asked_in_parts():
    rule = build_estimator("gmc", {"epsilon": "auto"})
    assert Weighing().of(rule, 0, lambda: pytest.fail("not needed"), rule.normalizer) is None
    assert Weighing().of(build_estimator("gmc", {}), 0, lambda: pytest.fail("not yet"), rule.normalizer) is not None
