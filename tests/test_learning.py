"""The embedded model learns within a few dozen updates, and stale training runs."""

import pytest
from training_runs import metrics_of, train_run

from gmc.config import resolve_settings


def rewards(path, **flags):
    """Mean sampled reward of each update of a seeded run of 8 × 8 responses at a brisk rate."""
    settings = resolve_settings(flags={"optimizer.learning_rate": 5e-4, "optimizer.schedule": "constant", **flags})
    train_run(path, settings)
    return [record["reward/mean"] for record in metrics_of(path)]


@pytest.mark.slow
def test_on_policy_gmc_gains_at_least_30_points(tmp_path):
    curve = rewards(tmp_path / "run", **{"delay": "0", "train.updates": 48})
    gain = sum(curve[-8:]) / 8 - sum(curve[:4]) / 4
    assert gain >= 0.30, curve


@pytest.mark.parametrize(("rule", "delay"), [("grpo", "64"), ("gmc", "64")])
def test_stale_training_runs(tmp_path, rule, delay):
    path = tmp_path / "run"
    settings = {"estimator.name": rule, "delay": delay, "train.updates": 4, "rollout.prompts": 2, "rollout.max_tokens": 16}
    assert len(rewards(path, **settings)) == 4
    assert metrics_of(path)[-1]["delay/mean"] == 3  # version 0 fills the queue, and four updates do not get past it
