"""`gmc runs`, `gmc doctor`, sparklines, and --auto-resume's choice, without training."""

import json

import pytest
from typer.testing import CliRunner

from gmc.cli import doctor
from gmc.cli.app import app
from gmc.cli.sparkline import ASCII, BLOCKS, can_draw, sparkline
from gmc.resolving.earlier import goes_on
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit


def make_run(path, *assignments, rewards=(), trained=True):
    run = RunDirectory.create(path, model="embedded", seed=0)
    if trained:
        run.save_settings("train", resolve_settings(assignments=["train.updates=4", *assignments]))
    if rewards:
        lines = [json.dumps({"update": update, "reward/mean": reward}) for update, reward in enumerate(rewards)]
        run.metrics.write_text("\n".join(lines) + "\n")
    return run


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_runs_are_listed_with_what_was_asked_and_what_came_of_it(tmp_path):
    make_run(tmp_path / "sweep" / "a", "estimator.name=tic", "delay=ramp:8", rewards=[0.0, 0.25, 0.5, 1.0])
    make_run(tmp_path / "b", rewards=[0.5])
    sampled = make_run(tmp_path / "c", trained=False)
    sampled.rollouts.mkdir(exist_ok=True)
    (sampled.rollouts / "b000000-v000000.parquet").write_bytes(b"x")
    make_run(tmp_path / "f", trained=False)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "run.toml").write_text("nonsense = [")
    with make_run(tmp_path / "e", rewards=[1.0]).lock():
        found = {
            run["run"].removeprefix(f"{tmp_path}/"): run
            for run in json.loads(invoke("runs", tmp_path, "--json").stdout)["runs"]
        }
    assert [*found] == ["b", "c", "d", "e", "f", "sweep/a"]
    a = found["sweep/a"]
    assert (a["rule"], a["delay"], a["updates"], a["planned_updates"], a["reward"]) == ("tic", "ramp:8", 4, 4, 0.4375)
    assert {name: run["state"] for name, run in found.items()} == {
        "b": "stopped",
        "c": "sampled",
        "d": "damaged",
        "e": "working",
        "f": "empty",
        "sweep/a": "finished",
    }
    assert 0 <= a["age_seconds"] < 60
    text = invoke("runs", tmp_path).stdout
    assert "\nsweep/\n  a " in text
    assert "▁" in text or "_" in text
    assert "damaged: " in text


def test_an_empty_and_a_missing_folder_say_so(tmp_path):
    assert "no runs in" in invoke("runs", tmp_path).stderr
    refused = invoke("runs", tmp_path / "nothing")
    assert refused.exit_code == 2
    assert "no such folder" in refused.stderr


def test_a_sparkline_shows_means_of_stretches():
    assert sparkline([0, 1], 8) == "▁█"
    assert sparkline([0, 0, 1, 1, 2, 2, 3, 3], 4) == BLOCKS[0] + BLOCKS[2] + BLOCKS[5] + BLOCKS[7]
    assert sparkline([5, 5, 5], 3) == BLOCKS[0] * 3
    assert sparkline([], 5) == ""
    assert sparkline([0, 1], 2, unicode=False) == ASCII[0] + ASCII[-1]
    assert [can_draw(name) for name in ("utf-8", "ascii", "latin-1", None, "nonsense")] == [True, False, False, False, False]


def test_auto_resume_goes_on_only_where_the_command_has_worked(tmp_path):
    assert not goes_on(tmp_path / "none", "train")
    failed = make_run(tmp_path / "failed")  # settings alone: a first command that failed binds nothing
    assert not goes_on(failed.path, "train")
    trained = make_run(tmp_path / "trained", rewards=[1.0])
    trained.rollouts.mkdir(exist_ok=True)
    (trained.rollouts / "batch-000000.v000000.parquet").write_bytes(b"x")
    assert goes_on(trained.path, "train")
    assert not goes_on(trained.path, "rollout")


def test_the_doctor_says_what_is_there_and_how_to_get_the_rest(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "_cpu_kernel", lambda: 1 / 0)
    found = json.loads(invoke("doctor", "--json").stdout)
    assert found["optional"]["wandb"].endswith("pip install 'gmc-rl[wandb]'")
    assert found["kernels"]["CPU attention with shared prompts"].startswith("ZeroDivisionError")
    assert found["kernels"]["GPU attention of variable length"].startswith("found")
    assert found["plug-ins"]["delays"].split()[0].isdigit()
    assert set(found["libraries"]) == set(doctor.LIBRARIES)
    text = invoke("doctor").stdout
    assert "libraries:" in text
    assert f"  torch: {found['libraries']['torch']}" in text
