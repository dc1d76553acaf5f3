"""Strangers' files of the newer kinds: sweeps, results, adapters, tables to import, and what live and resumed runs read."""

import json
import shutil

import pytest
from evaluation_parts import run as evaluate
from hypothesis import HealthCheck, given, settings
from sweep_files import write_sweep
from test_hostile_files import damaged, damages, within_limits
from test_lab_report import write_results
from test_shards_import import rows, saved
from training_runs import small_settings

from gmc.delays.schedule import ScheduleRow, read_schedule, write_schedule
from gmc.errors import GmcError
from gmc.evaluation.results import read_result
from gmc.evaluation.samples import read_samples
from gmc.generation.importing import ImportOptions, import_rollouts
from gmc.lab.exact.grid import KEYS, ExactGrid
from gmc.lab.report_input import read_input
from gmc.lab.results import read_results
from gmc.lab.study_file import ResultLines, read_grids
from gmc.lab.sweep_file import read_sweep
from gmc.live.heartbeats import HeartbeatWriter, read_heartbeat
from gmc.models import load_model, with_adapter
from gmc.store.logs import GrowingLog, cut_log, read_metrics, read_used
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import read_run_settings, read_saved_settings
from gmc.store.shards.launches import LaunchLog
from gmc.store.shards.reader import Launch

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def legal(tmp_path_factory):
    """One legal file or folder of each kind."""
    root = tmp_path_factory.mktemp("newer")
    run = RunDirectory.create(root / "run", model="embedded", seed=0)
    run.save_settings("train", small_settings())
    HeartbeatWriter(run.followers, "someone", 5.0).write("alive")
    log = LaunchLog(run.launches)
    for update in range(4):
        with run.used.open("a") as used, run.metrics.open("a") as metrics:
            used.write(json.dumps({"update": update, "groups": [[update, 0], [update, 1]]}) + "\n")
            metrics.write(json.dumps({"update": update, "reward/mean": 0.5}) + "\n")
        log.add(update, update, Launch([[3, 4], [5, 6]]))
    write_schedule(root / "schedule.parquet", [ScheduleRow(n, 0, n, 0, n, 0.0, 1.0) for n in range(4)])
    (root / "grids.toml").write_text("[[grid]]\ndrifts = [1.0, 2.0]\npairs = 2\n")
    (root / "lines.jsonl").write_text("".join(json.dumps(dict.fromkeys(KEYS, n)) + "\n" for n in range(3)))
    evaluate(root / "evals", batch_sequences=8)
    return {
        "sweep": write_sweep(root),
        "results": write_results(root / "results.jsonl"),
        "grids": root / "grids.toml",
        "lines": root / "lines.jsonl",
        "table": saved(root / "table.jsonl", rows()),
        "schedule": root / "schedule.parquet",
        "result": next((root / "evals").glob("*.json")),
        "samples": next((root / "evals").glob("*.parquet")),
        "run": run.path,
    }


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """A published policy that is an adapter."""
    pytest.importorskip("peft")
    root = tmp_path_factory.mktemp("adapter")
    return publish_policy(with_adapter(load_model("embedded"), rank=2, alpha=4.0), root, 3, "r")


def import_table(path):
    import_rollouts(path, path.parent / "out", ImportOptions())


READERS = {
    "sweep": ("", read_sweep),
    "results": ("", lambda path: (read_results(path), read_input([path]))),
    "grids": ("", lambda path: read_grids(path, ExactGrid)),
    "lines": ("", lambda path: ResultLines(path, KEYS)),
    "table": ("", import_table),
    "schedule": ("", read_schedule),
    "result": ("", read_result),
    "samples": ("", read_samples),
    "run settings": ("settings/train.toml", lambda path: (read_run_settings(path), read_saved_settings(path))),
    "run used": ("used.jsonl", lambda path: (GrowingLog(path).updates(), read_used(path, 2), cut_log(path, 2))),
    "run metrics": ("metrics.jsonl", read_metrics),
    "run launches": ("launches.jsonl", lambda path: (LaunchLog(path).read(), LaunchLog(path).cut(2))),
    "run heartbeat": ("followers/someone.json", read_heartbeat),
}


def attack(source, part, read, steps, tmp_path_factory):
    """Damage one file of a copy and have it read: right, or one line that names it."""
    path = tmp_path_factory.getbasetemp() / "attacked" / source.name
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)
    target = path / part if part else path
    target.write_bytes(damaged(target.read_bytes(), steps))
    with within_limits():
        try:
            read(target)
        except GmcError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert len(str(error)) < 3000  # noqa: PT017
            assert str(path.parent) in str(error)  # noqa: PT017


@pytest.mark.parametrize("kind", list(READERS))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=damages())
def test_a_damaged_file_is_read_or_refused_in_one_line(legal, tmp_path_factory, kind, steps):
    part, read = READERS[kind]
    attack(legal[kind.split()[0]], part, read, steps, tmp_path_factory)


@pytest.mark.parametrize("part", ["adapter_config.json", "adapter_model.safetensors"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=damages())
def test_a_damaged_adapter_is_read_or_refused_in_one_line(adapter, tmp_path_factory, part, steps):
    attack(adapter, part, lambda path: load_model(path.parent), steps, tmp_path_factory)
