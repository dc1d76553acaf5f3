"""An update that cannot be applied changes nothing and says which batch it was; trackers hear of every update."""

import math

import pytest
import torch
from training_runs import metrics_of, small_settings, train_run

from gmc.estimators.gmc import GMC
from gmc.models import load_model
from gmc.store.checkpoints import load_newest
from gmc.training.update import NonFiniteError

SMALL = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", "train.updates=3", "train.checkpoint_every=1"]


@pytest.mark.train
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_loss_stops_the_run_with_state_intact(tmp_path, monkeypatch, value):
    path = tmp_path / "run"
    objective = GMC.objective

    def poisoned(self, batch):
        result = objective(self, batch)
        return result * value if batch.update == 1 else result

    with monkeypatch.context() as patch:
        patch.setattr(GMC, "objective", poisoned)
        with pytest.raises(NonFiniteError, match=r"update 1 \(batches \[1\]\).*estimator gmc.*--resume") as error:
            train_run(path, small_settings(*SMALL))
    assert error.value.exit_code == 1
    assert len(metrics_of(path)) == 1
    assert load_newest(path / "checkpoints").update == 1
    assert train_run(path, small_settings(*SMALL), resume=True)["finished"]


@pytest.mark.train
def test_a_failed_update_leaves_the_weights_as_they_were(tmp_path, monkeypatch):
    before = {name: value.clone() for name, value in load_model("embedded").weights().items()}
    seen = {}

    def poisoned(self, batch):
        return batch.logp_BT * math.nan

    monkeypatch.setattr(GMC, "objective", poisoned)
    monkeypatch.setattr("gmc.training.opening.build_model", lambda *_: seen.setdefault("model", load_model("embedded")))
    with pytest.raises(NonFiniteError):
        train_run(tmp_path / "run", small_settings(*SMALL))
    assert all(torch.equal(value, before[name]) for name, value in seen["model"].weights().items())


@pytest.mark.train
def test_a_tracker_receives_every_update_and_learns_of_a_failure(tmp_path, monkeypatch):
    class Recorder:
        def __init__(self):
            self.updates, self.failed = [], None

        def log(self, update, metrics):
            self.updates.append((update, metrics["reward/mean"]))

        def log_samples(self, update, samples):
            pass

        def close(self, *, failed):
            self.failed = failed

    recorders = []
    monkeypatch.setattr("gmc.training.opening.make_trackers", lambda *_: [recorders.append(Recorder()) or recorders[-1]])
    path = tmp_path / "run"
    train_run(path, small_settings(*SMALL))
    assert recorders[0].updates == [(record["update"], record["reward/mean"]) for record in metrics_of(path)]
    assert recorders[0].failed is False
    monkeypatch.setattr(GMC, "objective", lambda self, batch: batch.logp_BT * math.nan)
    with pytest.raises(NonFiniteError):
        train_run(path, small_settings(*SMALL, "train.updates=5"), resume=True)
    assert recorders[1].failed is True
