"""Rules that need more than log-probs, or keep state, in the real training loop: they run, and a resume changes nothing."""

import zlib

import pytest
import torch
from training_runs import assert_resumes_bit_for_bit, metrics_of, small_settings, train_run

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.grading import Grader
from gmc.grading.grade import Verdict
from gmc.models import load_model
from gmc.parameters.whole import Whole
from gmc.scoring.passes import PackedPass
from gmc.scoring.scorer import Scorer
from gmc.store.shards.groups import token_ids
from gmc.store.shards.reader import read_shard
from gmc.training.anchors import Anchors
from gmc.training.update import Updater

RULES = {
    "gac": ["estimator.name=gac", "estimator.base.name=gmc", "estimator.base.epsilon=auto", "estimator.c_high=0.06"],
    "vcpo": ["estimator.name=vcpo"],
    "a3po": ["estimator.name=a3po", "estimator.outer_cap=5"],
    "grpo": ["estimator.name=grpo", "estimator.kl=0.2"],
    "decoupled-ppo": ["estimator.name=decoupled-ppo", "estimator.anchor_lag=2"],
}


def settings(rule):
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=2", "train.updates=4", "train.checkpoint_every=1"]
    return small_settings(*small, *RULES[rule])


@pytest.fixture(autouse=True)
def varied_rewards(monkeypatch):
    """Rewards by a checksum of the text, so that there is a gradient whatever the model knows."""

    def grade_many(self, pairs, **flags):
        verdicts = {True: Verdict(True, "correct", None, "exact"), False: Verdict(False, "incorrect", None, "exact")}
        return [verdicts[zlib.crc32(text.encode()) % 2 == 0] for _, text in pairs]

    monkeypatch.setattr(Grader, "grade_many", grade_many)


@pytest.mark.train
@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_run_equals_the_uninterrupted_one(rule, tmp_path):
    whole, _ = assert_resumes_bit_for_bit(tmp_path, settings(rule), update=2)
    assert any(record["optimizer/gradient_norm"] > 0 for record in metrics_of(whole))


class Watcher(Estimator):
    """Plain token weighting that needs both kinds of log-probs and the initial policy, and keeps what it sees."""

    name = "watcher"
    scope = "token"
    needs = frozenset({Need.BEHAVIOR_LOGP, Need.ENGINE_LOGP, Need.REFERENCE_LOGP})

    def __init__(self):
        super().__init__()
        self.seen = []

    def objective(self, batch):
        self.seen.append(batch)
        return batch.log_ratio_BT.detach().clamp(max=1).exp() * batch.advantages_B1 * batch.logp_BT


@pytest.mark.train
def test_engine_log_probs_are_those_of_the_shards_and_the_reference_is_the_initial_policy_before_and_after_a_resume(
    tmp_path, monkeypatch
):
    rule, path = Watcher(), tmp_path / "run"
    monkeypatch.setattr("gmc.training.opening.build_rule", lambda _: rule)
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0"]
    for updates in (2, 4):
        train_run(path, small_settings(*small, f"train.updates={updates}"), resume=updates > 2)
    assert torch.equal(rule.seen[0].reference_logp_BT, rule.seen[0].logp_BT.detach())
    initial = Scorer(load_model("embedded"))
    for update, batch in enumerate(rule.seen):
        rows = read_shard(path / "rollouts" / f"b{update:06d}-v{update:06d}.parquet").rollouts
        for engine_T, trainer_T, row in zip(batch.engine_logp_BT, batch.behavior_logp_BT, rows, strict=True):
            assert engine_T[: len(row.engine_logprobs)].tolist() == row.engine_logprobs
            assert trainer_T[: len(row.trainer_logprobs)].tolist() == row.trainer_logprobs
        scored = initial.score(*token_ids([rows[:4], rows[4:]]))
        assert torch.equal(batch.reference_logp_BT, scored.logp_BT)
    assert not torch.equal(rule.seen[3].reference_logp_BT, rule.seen[3].logp_BT.detach())


@pytest.mark.train
def test_weights_are_lent_before_the_current_forward_pass_so_that_its_graph_is_used(tmp_path, monkeypatch):
    """Two passes an update of one micro-batch, the reference's and the current one: nothing is run again for backward."""
    run, counts = PackedPass.run, []
    monkeypatch.setattr(PackedPass, "run", lambda self, *given, **more: counts.append(1) or run(self, *given, **more))
    update = Updater.run

    def counted(self, groups, number):
        counts.clear()
        metrics = update(self, groups, number)
        return metrics | {"test/passes": float(len(counts))}

    monkeypatch.setattr(Updater, "run", counted)
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", "train.updates=4"]
    train_run(tmp_path / "run", small_settings(*small, "estimator.name=grpo", "estimator.kl=0.5"))
    # Once the policy has moved, the penalty gives every response a gradient.
    assert [record["test/passes"] for record in metrics_of(tmp_path / "run")][1:] == [2, 2, 2]


@pytest.mark.train
def test_a_penalty_changes_nothing_before_the_policy_has_moved(tmp_path):
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", "estimator.name=grpo", "train.publish_every=1"]
    for kl in (0.0, 0.5):
        train_run(tmp_path / str(kl), small_settings(*small, "train.updates=2", f"estimator.kl={kl}"))
    first, second = (
        {(tmp_path / kl / "policies" / version / "model.safetensors").read_bytes() for kl in ("0.0", "0.5")}
        for version in ("v000001", "v000002")
    )
    assert (len(first), len(second)) == (1, 2)
    before, after = (record["grpo/kl"] for record in metrics_of(tmp_path / "0.5"))
    assert before == 0 < after


@pytest.mark.train
def test_a_skipped_update_counts_and_moves_neither_weights_nor_moments(tmp_path):
    """With both thresholds near zero everything after the first update is skipped."""
    rule = ["estimator.name=gac", "estimator.c_low=0", "estimator.c_high=1e-9"]
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", "train.checkpoint_every=1", "train.publish_every=1"]
    path = tmp_path / "run"
    train_run(path, small_settings(*small, *rule, "train.updates=4"))
    assert [record["optimizer/skipped"] for record in metrics_of(path)] == [0, 1, 1, 1]
    assert [record["update"] for record in metrics_of(path)] == [0, 1, 2, 3]
    assert metrics_of(path)[-1]["gac/consecutive_skips"] == 3
    published = [(path / "policies" / f"v{version:06d}" / "model.safetensors").read_bytes() for version in range(1, 5)]
    assert len(set(published)) == 1


@pytest.mark.unit
def test_the_anchor_is_the_policy_so_many_updates_back():
    model = load_model("embedded")
    network, anchors = model.network, Anchors(Whole(model), 2)
    seen = []
    with torch.no_grad():
        for update in range(5):
            next(network.parameters()).fill_(float(update))
            anchors.remember()
            with anchors.weights_of(update):
                seen.append(float(next(network.parameters()).mean()))
            assert float(next(network.parameters()).mean()) == update
    assert seen == [0, 0, 0, 1, 2]
