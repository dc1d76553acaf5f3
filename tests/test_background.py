"""Checkpoints and policies written while training goes on: of the state they were begun with, one at a time, errors heard."""

import json
import threading
import time

import pytest
import torch
from safetensors.torch import load_file
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.errors import GmcError
from gmc.models import load_model, policy_hash, private_copy, weights_hash
from gmc.store.checkpoints import load_checkpoint
from gmc.store.policies import publish_policy, read_policy_info
from gmc.training import session
from gmc.training.background import BackgroundWriter

SETTINGS = ("train.updates=6", "train.checkpoint_every=2", "train.publish_every=3", "train.keep_checkpoints=9", "delay=1")


@pytest.mark.unit
def test_one_job_at_a_time_and_what_follows_it_in_the_callers_thread():
    writer, gate, seen = BackgroundWriter(), threading.Event(), []
    writer.start(gate.wait, then=lambda: seen.append(threading.current_thread()))
    writer.look()
    assert seen == []
    threading.Timer(0.05, gate.set).start()
    writer.start(lambda: seen.append("second"))  # waits for the first
    assert seen[0] is threading.current_thread()
    writer.wait()
    writer.wait()
    assert seen[1:] == ["second"]
    writer.close()


@pytest.mark.unit
def test_an_error_is_raised_once_or_logged_in_the_end(caplog):
    def fail():
        raise GmcError("the disk is full")

    writer, after = BackgroundWriter(), []
    writer.start(fail, then=lambda: after.append(1))
    with pytest.raises(GmcError, match="disk is full"):
        writer.wait()
    writer.look()
    writer.start(fail)
    writer.close()
    assert "the disk is full" in caplog.text
    assert after == []


@pytest.mark.unit
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_private_copy_stays_when_training_goes_on(dtype, tmp_path):
    model = load_model("embedded")
    copy = private_copy(model, dtype)
    wanted = {name: tensor.to(dtype, copy=True) for name, tensor in model.weights().items()}
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in copy.weights().items())
    path = publish_policy(copy, tmp_path, 3, "run")
    saved, word = load_file(path / "model.safetensors"), str(dtype).removeprefix("torch.")
    assert {tensor.dtype for tensor in saved.values()} == {dtype}
    assert json.loads((path / "config.json").read_text())["dtype"] == word == read_policy_info(path).dtype
    loaded = load_model(path)  # as followers and evaluations do: in float32
    assert policy_hash(loaded) == read_policy_info(path).weights_hash == weights_hash(wanted)
    assert {tensor.dtype for tensor in loaded.weights().values()} == {torch.float32}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = tmp_path_factory.mktemp("background") / "whole"
    train_run(run, small_settings(*SETTINGS))
    return run


@pytest.mark.train
def test_training_goes_on_and_a_late_checkpoint_is_of_its_own_update(whole, tmp_path, monkeypatch):
    save, late, run = session.save_checkpoint, [], tmp_path / "late"

    def slow(directory, update, **parts):
        if update == 2:
            deadline = time.monotonic() + 20
            while len(metrics_of(run)) < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
            late.append(len(metrics_of(run)))
        return save(directory, update, **parts)

    monkeypatch.setattr(session, "save_checkpoint", slow)
    train_run(run, small_settings(*SETTINGS))
    assert late == [3]  # the update after it was made meanwhile, and its own publication waited
    assert weights_of(run) == weights_of(whole)
    assert metrics_of(run) == metrics_of(whole)
    for update in (2, 3, 4, 6):
        one, other = (load_checkpoint(path / "checkpoints" / f"u{update:06d}") for path in (run, whole))
        for part in ("weights", "optimizer"):
            tensors = getattr(one, part)
            assert all(torch.equal(tensors[name], value) for name, value in getattr(other, part).items())


@pytest.mark.train
def test_an_error_of_the_writer_ends_training_in_one_line(tmp_path, monkeypatch):
    def fail(*arguments, **parts):
        raise GmcError("u000002: cannot write, the disk is full")

    monkeypatch.setattr(session, "save_checkpoint", fail)
    with pytest.raises(GmcError, match="u000002: cannot write, the disk is full"):
        train_run(tmp_path / "run", small_settings(*SETTINGS, "train.updates=300", "train.checkpoint_every=2"))
    assert len(metrics_of(tmp_path / "run")) < 10
    assert not list((tmp_path / "run").rglob("READY"))


@pytest.mark.train
def test_policies_of_16_bits_hold_the_rounded_weights_and_train_the_same(whole, tmp_path):
    run = tmp_path / "run"
    train_run(run, small_settings(*SETTINGS, "train.policy_dtype=bfloat16"))
    assert metrics_of(run) == metrics_of(whole)
    half, full = (load_file(path / "policies" / "v000006" / "model.safetensors") for path in (run, whole))
    assert all(torch.equal(half[name], tensor.bfloat16()) for name, tensor in full.items())
    assert (
        load_model(run / "policies" / "v000006").weights().keys() == load_model(whole / "policies" / "v000006").weights().keys()
    )
