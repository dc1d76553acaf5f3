"""What an update hands to its rule, and what a refused update leaves, on two parameters."""

import math
from typing import Any

import pytest
import torch
from test_update_values import MAX_TOKENS, ByHand, close, make_updater
from two_parameters import SHIFT, START, X, Y, flat_lengths, groups, logp

from gmc.errors import DataError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.registry import build_estimator
from gmc.training.anchors import Anchors, Reference
from gmc.training.update import NonFiniteError, Updater

pytestmark = pytest.mark.unit

PLANNED = 12


class Watcher(Estimator):
    """Plain importance weighting by token that keeps every batch; needs everything that an update can compute."""

    name, summary, formula, reference = "watcher", "token ratio times advantage", "r A", "here"
    scope = "token"
    anchor_lag = 2
    needs = frozenset(Need) - {Need.ENGINE_LOGP, Need.BEHAVIOR_ENTROPY}
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Batch] = []

    def objective(self, batch: Batch) -> Any:
        self.seen.append(batch)
        return self.factor * torch.exp(batch.log_ratio_BT.detach()) * batch.advantages_B1 * batch.logp_BT


def make(rule: Estimator, *assignments: str) -> Updater:
    updater = make_updater(rule, *assignments, planned=PLANNED)
    updater.anchors = Anchors(updater.parameters, rule.anchor_lag)
    updater.reference = Reference(updater.parameters)
    return updater


def require_rows(found: torch.Tensor, wanted: Any) -> None:
    """Row b, token t of `found` is wanted(b, t)."""
    for b, length in enumerate(flat_lengths()):
        assert found[b, :length].tolist() == pytest.approx([wanted(b, t) for t in range(length)], rel=1e-6)


def test_log_probs_are_of_now_of_the_behavior_of_the_anchor_and_of_the_start():
    rule = Watcher()
    updater, history = make(rule), []
    for update in range(3, 8):
        history.append(updater.model.values)
        updater.run(groups(), update)
        batch, now, anchor = rule.seen[-1], history[-1], history[max(0, len(history) - 3)]
        require_rows(batch.logp_BT.detach(), lambda b, t, at=now: logp(at, b, t))
        require_rows(batch.anchor_logp_BT, lambda b, t, at=anchor: logp(at, b, t))
        require_rows(batch.reference_logp_BT, lambda b, t: logp(START, b, t))
        require_rows(batch.behavior_logp_BT, lambda b, t: logp(START, b, t) - SHIFT[b][t])
        require_rows(batch.lag_BT, lambda b, t, lag=update - 3: lag)
        assert updater.model.values != now, "the weights of now are back, and moved"


def test_the_rest_of_the_batch():
    rule = Watcher()
    make(rule).run(groups(), 5)
    [batch] = rule.seen
    assert batch.rewards_PG.tolist() == [[1, 0], [0, 1]]
    assert batch.lengths_B.tolist() == flat_lengths()
    assert (batch.update, batch.max_response_tokens, batch.planned_updates) == (5, MAX_TOKENS, PLANNED)
    norms = [sum(X[b][:n]) ** 2 + sum(Y[b][:n]) ** 2 for b, n in enumerate(flat_lengths())]
    assert batch.log_score_norm_B.exp().tolist() == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("kind", ["trainer", "engine"])
def test_ratios_use_the_log_probs_of_the_runs_kind_in_the_rule_and_in_the_metrics(kind):
    rule, rows = Watcher(), groups()
    for row in (row for group in rows for row in group):
        row.engine_logprobs = [value + 0.5 for value in row.trainer_logprobs]
    metrics = make(rule, f"rollout.logprobs={kind}").run(rows, 5)
    extra = 0.5 if kind == "engine" else 0.0
    log_rho = [sum(SHIFT[b][t] - extra for t in range(n)) for b, n in enumerate(flat_lengths())]
    assert rule.seen[0].log_rho_B.tolist() == pytest.approx(log_rho, abs=1e-6)
    assert metrics["ratio/log_rho_mean"] == pytest.approx(sum(log_rho) / 4, abs=1e-6)


@pytest.mark.parametrize(("rule", "epsilon"), [("gmc", 0.05), ("tic", 0.3), ("grpo", 0.28)])
def test_removed_mass_is_by_the_threshold_of_the_rule_and_else_by_the_papers(rule, epsilon):
    updater = make(build_estimator(rule, {} if rule == "grpo" else {"epsilon": epsilon}))
    rho = [math.exp(sum(SHIFT[b][:length])) for b, length in enumerate(flat_lengths())]
    means = [(rho[0] + rho[1]) / 2, (rho[2] + rho[3]) / 2]
    metrics = updater.run(groups(), 5)
    assert metrics["ratio/removed_mass"] == pytest.approx(sum(max(0.0, mean - 1 - epsilon) for mean in means) / 2, rel=1e-6)


def test_log_probs_that_a_shard_lacks_are_named():
    with pytest.raises(DataError, match="batch 5: its shard has no engine_logprobs; train with --logprobs trainer"):
        make(Watcher(), "rollout.logprobs=engine").run(groups(), 5)


@pytest.mark.parametrize(
    ("factor", "what"), [(math.nan, "the loss gradient"), (math.inf, "the loss gradient"), (1e200, "the gradient")]
)
def test_after_a_refused_update_training_goes_on_as_if_it_had_not_been(factor, what):
    """1e200: every number is finite, and only the norm overflows."""
    rule = Watcher()
    updater, hand = make(rule), ByHand(0.05)
    for update, bad in enumerate([False, True, False, True, False], start=5):
        rule.factor = factor if bad else 1.0
        if bad:
            with pytest.raises(NonFiniteError, match=rf"update {update} \(batches \[5\]\): {what} of estimator watcher"):
                updater.run(groups(), update)
        else:
            updater.run(groups(), update)
            hand.step()
        close(updater, hand)
