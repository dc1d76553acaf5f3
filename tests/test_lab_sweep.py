"""Studies run to their end in worker processes: killed, gone on with, failed, stopped; and through Ray and submitit."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gmc
from gmc.cli.app import app
from gmc.lab.results import read_results
from tests.sweep_files import write_sweep

COMMAND = [sys.executable, "-m", "gmc", "lab", "sweep"]
ONE_ARM = {"arms": {"gmc": {}}, "axes": {}, "select": None, "compare": None}


def sweep(path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [*COMMAND, str(path), "--out", str(path.parent / "out"), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(path: Path, *arguments: str, code: int = 0) -> str:
    """Run the command in this process; its workers are processes all the same."""
    result = CliRunner().invoke(app, ["lab", "sweep", str(path), "--out", str(path.parent / "out"), *arguments])
    assert result.exit_code == code, result.output
    return result.stdout + result.stderr


def workers(folder: Path) -> list[int]:
    """Processes with one of the sweep's log files as stderr."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                target = os.readlink(entry / "fd" / "2")
            except OSError:
                continue
            if target.startswith(str(folder)):
                found.append(int(entry.name))
    return found


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def no_worker_left(folder: Path) -> bool:
    return workers(folder) == []


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds processes through /proc")
def test_a_killed_sweep_goes_on_and_ends_with_the_results_of_an_undisturbed_one(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    changed = {
        "settings": {
            "delay": "ramp:2",
            "rollout": {"prompts": 2, "group_size": 2, "max_tokens": 12},
            "train": {"updates": 6, "checkpoint_every": 2},
            "eval": {"limit": 8, "samples": 1, "greedy": False},
        },
        "arms": {"gmc": {}, "grpo": {}},
        "axes": {"optimizer.learning_rate": [4e-4]},
        "select": {"seeds": [100], "axes": ["optimizer.learning_rate"]},
        "seeds": [0],
        "curve": {"every": 3, "limit": 8},
        "keep": False,
    }
    whole, killed = write_sweep(tmp_path / "a", **changed), write_sweep(tmp_path / "b", **changed)
    made = gmc.sweep(whole, out=tmp_path / "a" / "out")  # the library does what the command does
    assert (made.finished, made.failed, made.missing) == (4, 0, 0)
    assert [table.name for table in gmc.report(made.results, out=tmp_path / "report").tables]
    assert (tmp_path / "report" / "report.html").is_file()
    out = tmp_path / "b" / "out"
    process = sweep(killed)
    wait_for(lambda: any(out.glob("runs/*/checkpoints/u000002*")) or any(out.glob("runs/*/policies/*")))
    process.kill()
    process.communicate()
    wait_for(lambda: no_worker_left(out), 60)
    assert len(read_results(out / "results.jsonl").records) < 4
    said = finish(killed)
    assert no_worker_left(out)
    first, second = (read_results(tmp_path / name / "out" / "results.jsonl").records for name in "ab")

    def by_run(records):
        kept = ("arm", "stage", "seed", "scores", "curve", "windows", "chosen", "settings", "status")
        return {record.run: {name: getattr(record, name) for name in kept} for record in records}

    assert by_run(first) == by_run(second)
    assert [(r.arm, r.stage, r.seed, r.status) for r in first] == [
        (arm, stage, seed, "finished") for stage, seed in (("tuning", 100), ("verdict", 0)) for arm in ("gmc", "grpo")
    ]
    assert [point["version"] for point in first[0].curve] == [0, 3, 6]
    assert not any(out.glob("runs/*"))  # keep = false
    assert "4 runs are in" in said
    lines = (out / "results.jsonl").read_text()
    assert "4 runs are in" in finish(killed)
    assert (out / "results.jsonl").read_text() == lines  # nothing was repeated


@pytest.mark.process
def test_a_failed_run_is_recorded_and_the_rest_goes_on(tmp_path):
    missing = {"problems.source": str(tmp_path / "none.jsonl"), "problems.template": "arithmetic-v1"}
    arms = {"gmc": {}, "bad": {"settings": {"estimator": "gmc", **missing}}}
    path = write_sweep(tmp_path, **ONE_ARM | {"arms": arms, "seeds": [0]})
    said = finish(path, "--json", code=1)
    records = {record.arm: record for record in read_results(tmp_path / "out" / "results.jsonl").records}
    assert records["gmc"].finished
    assert (records["bad"].status, "none.jsonl" in records["bad"].error) == ("failed", True)
    assert json.loads(said[: said.index("\n")]) == {
        "results": str(tmp_path / "out" / "results.jsonl"),
        "finished": 1,
        "failed": 1,
        "missing": 0,
        "without_choice": False,
    }


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds processes through /proc")
def test_a_stop_leaves_no_process_and_says_how_to_go_on(tmp_path):
    settings = {"delay": "0", "rollout": {"prompts": 2, "group_size": 2, "max_tokens": 12}, "train": {"updates": 100000}}
    path = write_sweep(tmp_path, **ONE_ARM | {"settings": settings, "seeds": [0]})
    process, out = sweep(path), tmp_path / "out"
    wait_for(lambda: any(out.glob("runs/*/metrics.jsonl")))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped by SIGTERM with 1 run to go; the same command goes on" in said
    assert no_worker_left(out)
    assert any(out.glob("runs/*/checkpoints/*/READY"))
    assert read_results(out / "results.jsonl").records == []


LAUNCHERS = {"ray": ("ray", ()), "slurm": ("submitit", ("--option", "cluster=local"))}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_other_launchers_make_the_same_runs(launcher, tmp_path):
    library, options = LAUNCHERS[launcher]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install 'gmc-rl[{launcher}]'")
    path = write_sweep(tmp_path, **ONE_ARM | {"seeds": [0]})
    process = sweep(path, "--launcher", launcher, *options)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    (record,) = read_results(tmp_path / "out" / "results.jsonl").records
    assert record.finished, record.error
    assert record.training["updates"] == 4
    assert 0 <= record.scores["arithmetic"]["avg@1"]["value"] <= 1


@pytest.mark.unit
def test_the_plan_is_shown_without_running_and_bad_requests_are_one_line(tmp_path):
    path = write_sweep(tmp_path)
    plan = json.loads(finish(path, "--dry-run", "--json").splitlines()[0])
    stages = [(stage["stage"], stage["runs"], stage["done"]) for stage in plan["stages"]]
    assert stages == [("tuning", 6, 0), ("verdict", 4, 0)]
    assert plan["stages"][0]["cells"]["gmc, learning_rate 0.0001, epsilon 0.28"] == [100]
    assert plan["stages"][1]["undecided_cells"] == 2
    assert 0 < plan["stages"][0]["hours"] < 0.1
    assert 0 < plan["stages"][1]["hours"] < 0.1, "a verdict that waits for its tuning takes time as well"
    assert not (tmp_path / "out").exists()
    for arguments in (["--launcher", "pbs"], ["--option", "x=1"], ["--option", "x"]):
        said = finish(path, *arguments, code=2)
        assert said.count("\n") == 1, said
        assert arguments[1] in said or arguments[0] in said
