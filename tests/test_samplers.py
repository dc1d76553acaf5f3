"""Sampling in processes of its own while training goes on: the same run, whoever dies."""

import json
import os
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.errors import GmcError
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.training import run, sampler_process, samplers
from gmc.training.sampler_process import SamplerProcess

pytestmark = pytest.mark.process

SETTINGS = ("train.updates=5", "train.checkpoint_every=2", "train.publish_every=4", "delay=2")
ELSEWHERE = 'rollout.devices=["cpu","cpu"]'


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The run as one process makes it."""
    path = tmp_path_factory.mktemp("samplers") / "here"
    train_run(path, small_settings(*SETTINGS))
    return path


def compared(path):
    """Metrics but those of what is in work, and the rows of every shard."""
    metrics = [{key: value for key, value in each.items() if "so_far" not in key} for each in metrics_of(path)]
    shards = [read_shard(each).rollouts for each in sorted((path / "rollouts").glob("*.parquet"))]
    return metrics, weights_of(path), [[replace(row, run_id="") for row in rows] for rows in shards]


def children() -> list[int]:
    """Sampling processes of this one, by what /proc says."""
    found = subprocess.run(["pgrep", "-f", "gmc.generation.sampler"], capture_output=True, text=True, check=False).stdout
    ours = [int(line) for line in found.split()]
    return [pid for pid in ours if Path(f"/proc/{pid}/stat").read_text().split()[3] == str(os.getpid())]


def test_a_killed_sampler_is_started_again_and_its_batch_made_once(here, tmp_path, monkeypatch, caplog):
    away, killed = tmp_path / "away", []
    ask = SamplerProcess.ask

    def kill_in_the_middle(self, job):
        if job["batch"] == 3 and not killed:
            killed.append(self._process.pid)
            threading.Timer(0.02, os.kill, (self._process.pid, signal.SIGKILL)).start()
        return ask(self, job)

    monkeypatch.setattr(SamplerProcess, "ask", kill_in_the_middle)
    train_run(away, small_settings(*SETTINGS, ELSEWHERE))
    assert killed
    assert compared(away) == compared(here)
    assert "started again" in caplog.text
    assert children() == []
    assert not list(away.rglob(".tmp-*"))


def test_an_error_of_a_sampler_ends_training_in_one_line(tmp_path):
    settings = small_settings(*SETTINGS, 'rollout.devices=["cpu"]')
    broken = settings.model_copy(
        update={"problems": settings.problems.model_copy(update={"source": str(tmp_path / "no.jsonl")})}
    )
    with pytest.raises(GmcError, match=r"sampler-\d on cpu .*no\.jsonl") as error:
        train_run(tmp_path / "run", broken)
    assert "\n" not in str(error.value)
    assert children() == []


def test_a_process_that_always_dies_ends_training_with_the_name_of_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(SamplerProcess, "ask", lambda self, job: False)
    with pytest.raises(GmcError, match=r"ended 3 times in batch 0; its messages are in .*sampler-\d\.log"):
        train_run(tmp_path / "run", small_settings(*SETTINGS, ELSEWHERE))


def test_a_resumed_run_makes_the_batches_of_version_0_that_were_in_work(here, tmp_path, monkeypatch):
    away, settings = tmp_path / "away", small_settings(*SETTINGS, 'rollout.devices=["cpu"]')
    stop = threading.Event()
    shard = samplers.SamplerPool.shard

    def stop_at_the_second(self, batch):
        if batch == 1:
            stop.set()
        return shard(self, batch)

    monkeypatch.setattr(samplers.SamplerPool, "shard", stop_at_the_second)
    run.train_run(away, settings, stopping=stop.is_set)
    assert len(metrics_of(away)) < 5
    monkeypatch.undo()
    train_run(away, settings, resume=True)
    assert compared(away) == compared(here)


DOUBLE = """
import json, os, sys
from gmc.generation import sampler_start
from gmc.lifeline import VARIABLE
seen = os.environ["CUDA_VISIBLE_DEVICES"], "torch" in sys.modules
os.fstat(int(os.environ[VARIABLE]))
sampler_start.hold_on()
assert VARIABLE not in os.environ
asked = json.loads(sys.stdin.readline())
open(os.path.join(asked["run"], asked["name"]), "w").write(json.dumps([*seen, asked["settings"]["model"]["device"]]))
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"batch": 0}), flush=True)
"""


def test_every_child_sees_its_device_before_torch_is_imported(tmp_path, monkeypatch):
    (tmp_path / "double.py").write_text(DOUBLE)
    monkeypatch.setattr(sampler_process, "PROGRAM", (str(tmp_path / "double.py"),))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5,7")
    directory = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    for index, devices in enumerate((["3"], ["1", "2"])):
        process = SamplerProcess(f"sampler-{index}", devices, directory, small_settings("model.device=cpu"), tmp_path)
        assert process.ask({"batch": 0})
        process.close()
    found = [json.loads((directory.path / f"sampler-{index}").read_text()) for index in range(2)]
    assert found == [["7", False, "cuda"], ["3,5", False, "cuda"]]
