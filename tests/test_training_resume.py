"""kill −9 at any moment, then --resume: the same metrics and weights as the run that was left alone."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file, save_file
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.errors import DataError, UsageError
from gmc.store.checkpoints import load_newest
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import RolloutStore
from gmc.training import run
from gmc.training.loop import Observer
from gmc.training.optimizer import learning_rate
from gmc.training.signals import stop_on_signals

UPDATES = 9
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from training_runs import small_settings, train_run
train_run(Path({path!r}), small_settings(*{assignments!r}), resume={resume!r})
"""

CASES = {
    "fixed": ["delay=3", "estimator=gmc", "train.tokens_per_micro_batch=150"],
    "length clock": ["delay=length:10", "estimator=gmc"],
    "in flight": ["delay=inflight:20", "rollout.entropies=true"],
    "further prompts": ["delay=length:10", "rollout.resample_equal=3"],
    "block": ["delay=block:3:1", "estimator=gmc"],
    "reuse": ["delay=reuse:3", "estimator=gmc"],
    "rule with state": ["delay=2", "estimator.name=gac", "estimator.base=gmc", "train.tokens_per_micro_batch=150"],
    "8-bit optimizer": ["delay=1", "optimizer.name=adamw8bit"],
}


def assignments_of(case):
    return [*CASES[case], f"train.updates={UPDATES}", "train.checkpoint_every=2", "train.publish_every=4"]


def start(path, assignments, *, resume):
    program = PROGRAM.format(tests=os.path.dirname(__file__), path=str(path), assignments=assignments, resume=resume)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def lines(path):
    return len((path / "metrics.jsonl").read_text().splitlines()) if (path / "metrics.jsonl").exists() else 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_killed_run_resumes_to_the_same_end(case, tmp_path):
    assignments = assignments_of(case)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole, assignments, resume=False))
    generator = random.Random(case)
    resume = False
    for target in (2, 5, 7):  # kill at a random moment after this many updates stand in the log
        process = start(killed, assignments, resume=resume)
        deadline = time.monotonic() + 120
        while process.poll() is None and lines(killed) < target and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(generator.random() * 0.15)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        resume = True
    finish(start(killed, assignments, resume=True))
    assert metrics_of(killed) == metrics_of(whole)
    assert weights_of(killed) == weights_of(whole)
    assert (killed / "used.jsonl").read_text() == (whole / "used.jsonl").read_text()
    run = RunDirectory.open(killed)
    batches = {stored.batch for stored in RolloutStore(run.rollouts, run.run_id).list()}
    source = load_newest(killed / "checkpoints").extra["source"]
    batches |= {batch for batch, _, _ in source.get("flying", [])}
    used = {tuple(group) for line in (killed / "used.jsonl").read_text().splitlines() for group in json.loads(line)["groups"]}
    waiting = metrics_of(killed)[-1]["rollouts/groups_waiting"]
    assert len(batches) * 4 == len(used) + waiting


@pytest.mark.process
def test_sigterm_writes_a_checkpoint_and_the_resumed_run_ends_the_same(tmp_path):
    assignments = assignments_of("fixed")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train_run(whole, small_settings(*assignments))
    process = start(stopped, assignments, resume=False)
    while process.poll() is None and lines(stopped) < 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    done = lines(stopped)
    assert (stopped / "checkpoints" / f"u{done:06d}" / "READY").exists()
    train_run(stopped, small_settings(*assignments), resume=True)
    assert metrics_of(stopped) == metrics_of(whole)


@pytest.mark.train
def test_a_longer_horizon_takes_effect_from_the_resumed_update_on(tmp_path, caplog):
    path = tmp_path / "run"
    base = ["delay=2", "optimizer.schedule=linear", "rollout.max_tokens=8", "train.checkpoint_every=2"]
    train_run(path, small_settings(*base, "train.updates=4"))
    train_run(path, small_settings(*base, "train.updates=8"), resume=True)
    settings = small_settings(*base)
    rates = [record["optimizer/learning_rate"] for record in metrics_of(path)]
    expected = [learning_rate(update, 4 if update < 4 else 8, settings.optimizer) for update in range(8)]
    assert rates == pytest.approx(expected)
    # The shorter run launched nothing beyond its end, so the queue refills from version 4 on.
    assert [record["delay/mean"] for record in metrics_of(path)] == [0, 1, 2, 2, 0, 1, 2, 2]
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any(
        "4 updates were planned and now 8 are: the rollouts from batch 4 on are sampled only now, by version 4." in line
        for line in said
    )
    assert any("learning rates of a linear schedule over 4 updates, those to come have that over 8;" in line for line in said)


@pytest.mark.train
def test_on_policy_at_a_constant_rate_a_longer_horizon_ends_as_one_long_run(tmp_path, caplog):
    base = ["delay=0", "optimizer.schedule=constant", "rollout.max_tokens=8"]
    train_run(tmp_path / "whole", small_settings(*base, "train.updates=4"))
    for updates in (2, 4):
        train_run(tmp_path / "longer", small_settings(*base, f"train.updates={updates}"), resume=updates == 4)
    assert metrics_of(tmp_path / "longer") == metrics_of(tmp_path / "whole")
    assert weights_of(tmp_path / "longer") == weights_of(tmp_path / "whole")
    assert "one run of" not in caplog.text


@pytest.mark.train
def test_a_shorter_horizon_lets_its_own_batches_wait_and_a_longer_one_uses_them(tmp_path, caplog):
    base = ["delay=1", "rollout.max_tokens=8", "train.checkpoint_every=1"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train_run(whole, small_settings(*base, "train.updates=4"))
    with stop_on_signals() as stop:
        stopping = StopAfter(2, stop)
        run.train_run(cut, small_settings(*base, "train.updates=4"), observer=stopping, stopping=lambda: bool(stop))
    caplog.set_level("INFO")
    assert train_run(cut, small_settings(*base, "train.updates=2"), resume=True)["finished"]
    assert "1 batches (from number 2) were launched for updates after 2 and wait" in caplog.text
    assert train_run(cut, small_settings(*base, "train.updates=4"), resume=True)["finished"]
    assert metrics_of(cut) == metrics_of(whole)
    assert weights_of(cut) == weights_of(whole)


class StopAfter(Observer):
    """Asks for a stop after so many updates."""

    def __init__(self, updates, stop):
        self._updates, self._stop = updates, stop

    def updated(self, update, metrics):
        if update + 1 == self._updates:
            self._stop.signal_name = "SIGTERM"


@pytest.mark.train
def test_a_finished_run_resumed_without_a_longer_horizon_changes_nothing(tmp_path):
    path = tmp_path / "run"
    settings = small_settings("delay=1", "rollout.max_tokens=8", "train.updates=2")
    train_run(path, settings)
    before = (metrics_of(path), weights_of(path))
    assert train_run(path, settings, resume=True)["finished"]
    assert (metrics_of(path), weights_of(path)) == before


@pytest.mark.train
def test_refusals_name_the_cure(tmp_path):
    path = tmp_path / "run"
    settings = small_settings("delay=2", "rollout.max_tokens=8", "train.updates=3", "train.checkpoint_every=1")
    train_run(path, settings)
    with pytest.raises(UsageError, match=r"--resume.*--overwrite"):
        train_run(path, settings)
    with pytest.raises(UsageError, match="seed"):
        train_run(path, small_settings("seed=5"), resume=True)
    with pytest.raises(UsageError, match=r"--resume with delay = 0: .* was started with 2; leave it out"):
        train_run(path, settings.model_copy(update={"delay": "0"}), resume=True)
    (path / "rollouts" / "b000001-v000000.parquet").unlink()
    with pytest.raises(DataError, match=r"b000001.*missing"):
        train_run(path, settings, resume=True)


DAMAGE = ["delay=1", "rollout.max_tokens=8", "train.updates=4", "train.checkpoint_every=2", "train.keep_checkpoints=2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    settings = small_settings(*DAMAGE)
    train_run(path, settings)
    return path


def _drop_a_tensor(path):
    file = path / "checkpoints" / "u000004" / "weights.safetensors"
    tensors = load_file(file)
    tensors.pop(next(iter(tensors)))
    save_file(tensors, file, metadata={"aliases": "{}"})


def _unmount(path):
    (path / "checkpoints").rename(path.parent / "elsewhere")
    (path / "checkpoints").symlink_to(path.parent / "not-mounted")


DAMAGES = {
    "checkpoints on an unmounted disk": (_unmount, r"checkpoints: cannot be read \(it points to .*mount the disk"),
    "no checkpoints": (lambda p: shutil.rmtree(p / "checkpoints"), r"checkpoints: no such folder, though policy v000004"),
    "renamed checkpoint": (lambda p: (p / "checkpoints/u000004").rename(p / "checkpoints/u000099"), "u000099.*4 updates"),
    "missing tensor": (_drop_a_tensor, r"u000004.*weights"),
    "number in used.jsonl": (lambda p: (p / "used.jsonl").write_text("3\n"), r"used\.jsonl, line 1"),
    "text as update": (lambda p: (p / "used.jsonl").write_text('{"update":"0","groups":[]}\n'), r"used\.jsonl, line 1"),
    "no groups": (
        lambda p: (p / "used.jsonl").write_text("".join(f'{{"update":{n}}}\n' for n in range(4))),
        r"used\.jsonl, line 1: groups",
    ),
    "junk in metrics": (lambda p: (p / "metrics.jsonl").write_bytes(b"\xff\xfe\n"), r"metrics\.jsonl, line 1"),
    "short metrics": (
        lambda p: (p / "metrics.jsonl").write_text('{"update":0}\n'),
        r"metrics\.jsonl, line 2: update 1 is missing",
    ),
}


@pytest.mark.train
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused_by_name_and_left_as_it_is(damage, trained, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained, path)
    spoil, message = DAMAGES[damage]
    spoil(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    with pytest.raises(DataError, match=message):
        train_run(path, small_settings(*DAMAGE, "train.updates=6"), resume=True)
    after = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    assert {file for file in before if before[file] != after.get(file)} <= {path / "settings" / "train.toml"}


@pytest.mark.train
def test_junk_in_the_lock_file_does_not_matter(trained, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained, path)
    (path / "lock").write_bytes(b"\xff\xfe")
    assert train_run(path, small_settings(*DAMAGE), resume=True)["finished"]


@pytest.mark.train
def test_a_horizon_shorter_than_what_is_done_is_refused(trained, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained, path)
    with pytest.raises(UsageError, match=r"4 updates are done, more than --updates 3"):
        train_run(path, small_settings(*DAMAGE, "train.updates=3"), resume=True)


@pytest.mark.train
def test_a_policy_that_a_kill_kept_from_being_published_comes_with_the_resume(tmp_path):
    path = tmp_path / "run"
    settings = small_settings(*DAMAGE, "train.publish_every=2")
    train_run(path, settings)
    shutil.rmtree(path / "policies")
    train_run(path, settings, resume=True)
    assert (path / "policies" / "v000004" / "READY").exists()


@pytest.mark.train
def test_lengths_generated_and_trained_are_compared(trained):
    last = metrics_of(trained)[-1]
    # With a fixed delay every launched group is trained on in the end, so both means are of the same responses.
    assert last["response/trained_length_mean_so_far"] == last["response/generated_length_mean_so_far"] > 0
