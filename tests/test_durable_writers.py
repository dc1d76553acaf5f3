"""Every writer of a run's files leaves them durable: its flushes and renames, recorded."""

import ast
import json
from pathlib import Path

import pytest
import torch
from evaluation_parts import run as run_evaluation
from recorded_disk import Event, recorded, rename_of, require_durable_file, require_durable_folder, require_durable_names
from shard_samples import write_sample
from test_scheduled_source import Maker, make_source
from test_update_values import Plain, make_updater
from training_runs import small_settings
from two_parameters import groups

from gmc.delays.base import GroupRef
from gmc.delays.schedule import schedule_of_run, write_schedule
from gmc.live import ending, exclusive
from gmc.live.claims import Claims
from gmc.live.heartbeats import HeartbeatWriter, Watcher
from gmc.models import load_model
from gmc.store import files
from gmc.store.checkpoints import save_checkpoint
from gmc.store.logs import cut_log
from gmc.store.policies import publish_policy, set_aside_policies
from gmc.store.run_directory import RunDirectory, RunRecord
from gmc.store.shards.store import RolloutStore
from gmc.training.session import Session

pytestmark = pytest.mark.unit


def test_a_shard(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        path = write_sample(tmp_path)
    require_durable_file(events, path)


def test_the_shard_of_a_source(tmp_path, monkeypatch):
    source = make_source(tmp_path, 0, maker=Maker())
    with recorded(monkeypatch) as events:
        source.launch(0)
    require_durable_file(events, tmp_path / "b000000-v000000.parquet")


def test_a_checkpoint(tmp_path, monkeypatch):
    state = {"w": torch.ones(3)}
    with recorded(monkeypatch) as events:
        save_checkpoint(tmp_path, 4, weights=state, optimizer=state, estimator={}, extra={"run_id": "r"}, keep=2)
    require_durable_folder(events, tmp_path / "u000004")


def test_a_policy_and_its_replacement(tmp_path, monkeypatch):
    model = load_model("embedded")
    with recorded(monkeypatch) as events:
        path = publish_policy(model, tmp_path, 3, "run")
    require_durable_folder(events, path)
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    with recorded(monkeypatch) as events:
        publish_policy(model, tmp_path, 3, "run")
    require_durable_folder(events, path)
    assert files.is_ready(path)


def test_a_run_and_its_settings(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
        run.bind_weights("a" * 64)
    assert events.count(Event("rename", run.path / "run.toml")) == 2
    require_durable_file(events, run.path / "run.toml")


def test_a_schedule(tmp_path, monkeypatch):
    rows = schedule_of_run([[GroupRef(0, 0)]], {0: 0})
    with recorded(monkeypatch) as events:
        write_schedule(tmp_path / "s.parquet", rows)
    require_durable_file(events, tmp_path / "s.parquet")


def test_a_heartbeat(tmp_path, monkeypatch):
    writer = HeartbeatWriter(tmp_path, "me", 60.0)
    with recorded(monkeypatch) as events:
        writer.write("working")
    require_durable_file(events, tmp_path / "me.json")


def test_a_claim(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        assert exclusive.record_once(tmp_path / "b000001.1", {"follower": "me"})
    place = rename_of(events, tmp_path / "b000001.1")
    staged = events[place - 1].path
    size = (tmp_path / "b000001.1" / exclusive.RECORD).stat().st_size
    written = rename_of(events, staged / exclusive.RECORD)
    assert Event("sync", events[written - 1].path, size) in events[:written]
    assert Event("sync", staged) in events[written:place]
    assert Event("sync", tmp_path) in events[place + 1 :]


def test_a_run_locked_before_it_is_made_does_not_vanish(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events, RunDirectory(tmp_path / "runs" / "run", RunRecord("", "", 0, "", "")).lock():
        pass
    require_durable_names(events, tmp_path / "runs" / "run", tmp_path)


def test_the_settings_of_a_command(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    with recorded(monkeypatch) as events:
        run.save_settings("train", small_settings())
    require_durable_file(events, run.settings("train"))
    require_durable_names(events, run.settings("train"), run.path)


def test_the_end_of_a_live_run_and_its_withdrawal(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    with recorded(monkeypatch) as events:
        ending.mark_ended(run, 3)
    require_durable_file(events, run.ended)
    with recorded(monkeypatch) as events:
        ending.unmark_ended(run)
    assert events == [Event("sync", run.path)]


def test_the_shard_of_a_follower_is_durable_before_its_batch_is_decided(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    claims = Claims(run, "me", Watcher(run.followers, 10.0))
    claim = claims.next_free(1)
    assert claims.take(claim)
    with recorded(monkeypatch) as events:
        assert claims.publish(claim, 0, lambda path: write_sample(path.parent, batch=claim.batch, version=0))
    shard = run.rollouts / f"b{claim.batch:06d}-v000000.parquet"
    moved, decided = rename_of(events, shard), rename_of(events, run.claims / f"b{claim.batch:06d}.done")
    staged = events[decided - 1].path
    assert Event("sync", staged / shard.name, shard.stat().st_size) in events[:decided]
    assert Event("sync", staged) in events[:decided]
    assert Event("sync", run.claims) in events[decided:moved]
    assert Event("sync", run.rollouts) in events[moved:]
    require_durable_names(events, shard, run.path)


def test_the_samples_of_an_evaluation_come_before_its_scores(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        result = run_evaluation(tmp_path / "evals")
    samples, scores = (require_durable_file(events, path) for path in (result.samples_path, result.scores_path))
    assert Event("sync", tmp_path / "evals") in events[samples:scores]
    assert events.index(Event("rename", result.scores_path)) == scores, "scores were there before the samples"
    part = next(event.path for event in events if event.kind == "rename" and event.path.suffix == ".parquet")
    assert part.parent.suffix == ".parts"
    require_durable_names(events, part, tmp_path)


def test_the_logs_are_durable_before_the_checkpoint_that_counts_on_them(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    source = make_source(run.rollouts, 0, maker=Maker())
    session = Session(run, make_updater(Plain()), source, 0, None, publish_every=50)
    session.record(0, groups(), {"reward/mean": 0.5})
    run.checkpoints.mkdir()  # else making it flushes the run's folder anyway
    with recorded(monkeypatch) as events:
        session.save()
        session.wait()
    ready = require_durable_file(events, run.checkpoints / "u000001" / files.READY)
    for log in (run.used, run.metrics):
        assert Event("sync", log, log.stat().st_size) in events[:ready]
    assert Event("sync", run.path) in events[:ready]
    require_durable_folder(events, run.checkpoints / "u000001")


def test_a_log_that_is_cut(tmp_path, monkeypatch):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"update": n}) + "\n" for n in range(4)))
    with recorded(monkeypatch) as events:
        cut_log(log, 2)
    require_durable_file(events, log)
    assert [json.loads(line)["update"] for line in log.read_text().splitlines()] == [0, 1]


def test_shards_and_policies_set_aside(tmp_path, monkeypatch):
    write_sample(tmp_path, batch=0, version=3)
    with files.ready_directory(tmp_path / "v000003") as folder:
        (folder / "content").write_text("x")
    for set_aside in (RolloutStore(tmp_path, "run-a").set_aside, lambda version: set_aside_policies(tmp_path, version)):
        with recorded(monkeypatch) as events:
            [moved] = set_aside(2)
        assert moved.exists()
        assert events[rename_of(events, moved) + 1 :] == [Event("sync", moved.parent), Event("sync", tmp_path)]


WRITING = {"write_text", "write_bytes", "write_table", "ParquetWriter", "savefig", "save_file", "save_pretrained"}
WRITERS = {
    "export/plan.py": "into a temporary folder",
    "export/write.py": "in a new_directory",
    "store/shards/unfinished.py": "into memory",
    "generation/sampler.py": "version 0 for other samplers, in the handover folder",
    "training/shared_saving.py": "in a folder that counts once rank 0 has written READY",
    "training/sampler_process.py": "the log of a sampling process",
    "delays/schedule.py": "under atomic_path",
    "evaluation/arms_report.py": "under atomic_path",
    "evaluation/curve.py": "under atomic_path",
    "evaluation/samples.py": "under atomic_path",
    "simulator/plots.py": "under atomic_path",
    "store/files.py": "makes files durable",
    "store/checkpoints.py": "in a ready_directory",
    "store/policies.py": "in a ready_directory",
    "store/shards/writer.py": "into memory, then write_bytes of gmc.store.files",
    "store/run_directory.py": "the lock, which holds only while its process lives",
    "engines/redirect.py": "a log that nothing counts on",
    "engines/vllm.py": "weights for another process, gone with this one",
    "engines/vllm_server.py": "weights for servers, removed with the engine",
    "engines/vllm_start.py": "a model for another process, gone with this one",
    "cli/streams.py": "messages of a process whose terminal is gone",
    "lab/exact/report.py": "under atomic_path",
    "lab/toy/report.py": "under atomic_path",
    "lab/report_plots.py": "into memory",
    "lab/results.py": "appends lines and flushes them",
    "lab/sweep_pool.py": "a log that nothing counts on",
    "rewards/running.py": "in a temporary folder, gone with the job",
    "training/weight_sender.py": "a log that nothing counts on",
    "embedded/pretrain.py": "makes the model of the package, once",
}
"""Files of gmc that write without `write_text`, `write_bytes` or `write_json` of gmc.store.files, and why they may."""


def writes(call: ast.Call) -> bool:
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open" and not method:
        modes = [value for node in call.args[1:2] if isinstance(value := getattr(node, "value", None), str)]
        return any(set(mode) & set("wax+") for mode in modes)
    return name in WRITING - {"write_text", "write_bytes"} or (method and name in WRITING)


def test_no_file_is_written_past_the_durable_writers():
    package = Path(files.__file__).parents[1]
    found = set()
    for path in package.rglob("*.py"):
        if any(isinstance(node, ast.Call) and writes(node) for node in ast.walk(ast.parse(path.read_text("utf-8")))):
            found.add(path.relative_to(package).as_posix())
    assert found == set(WRITERS)
