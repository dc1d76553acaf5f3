"""Bad input: one clear line on stderr, exit code 1 or 2, no traceback, nothing lost."""

import json
import multiprocessing
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gmc
from gmc.cli.app import app
from gmc.store.run_directory import RunDirectory

runner = CliRunner()
SMALL = ["--prompts", "2", "--group-size", "2", "--max-tokens", "8"]


def gmc_command(*arguments: str | Path, exit_code: int):
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, (result.stderr, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def refused(*arguments: str | Path, exit_code: int = 2) -> str:
    """The one error line of a refused command."""
    stderr = gmc_command(*arguments, exit_code=exit_code).stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("error:")]
    return line


@pytest.fixture
def rolled(tmp_path):
    run = tmp_path / "run"
    gmc_command("rollout", "--run", run, "--batches", "2", *SMALL, exit_code=0)
    return run


@pytest.mark.unit
def test_version():
    assert gmc_command("--version", exit_code=0).stdout.strip() == f"gmc {gmc.__version__}"


@pytest.mark.train
def test_usage_errors_exit_with_2():
    gmc_command("train", "--no-such-flag", exit_code=2)
    gmc_command("no-such-command", exit_code=2)


@pytest.mark.train
def test_unknown_estimator_lists_what_was_found_and_where(tmp_path):
    line = refused("train", "--run", tmp_path / "run", "--estimator", "gmcc")
    assert "gmcc" in line
    assert "tic" in line
    assert "grpo" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.train
def test_bad_settings_name_the_key_and_create_nothing(tmp_path):
    run = tmp_path / "run"
    assert "epsilon" in refused("train", "--run", run, "--set", "estimator.epsilon=-1")
    assert "nothing" in refused("train", "--run", run, "--estimator", "gac", "--set", "estimator.base=nothing")
    assert "rollout.group_size = 1" in refused("rollout", "--run", run, "--group-size", "1")
    assert "top_p" in refused("rollout", "--run", run, "--set", "rollout.top_p=0.9")
    assert "top_p" in refused("train", "--run", run, "--set", "rollout.top_p=0.9")
    assert "did you mean train.updates" in refused("train", "--run", run, "--set", "train.update=3")
    assert "lab-delay-sweep" in refused("train", "--run", run, "--recipe", "nothing")
    assert "Examples:" in refused("train", "--run", run, "--delay", "sometimes")
    assert "for example 0, 256" in refused("train", "--run", run, "--delay", "-3")
    assert not run.exists()


@pytest.mark.train
def test_surplus_version_0_batches_name_the_cure(rolled):
    line = refused("train", "--run", rolled, "--delay", "0", "--updates", "2")
    assert "--delay shards" in line
    assert "longer delay" in line
    assert len(list((rolled / "rollouts").glob("*.parquet"))) == 2


@pytest.mark.train
def test_a_trained_run_needs_resume_or_overwrite(rolled):
    gmc_command("train", "--run", rolled, "--delay", "1", "--updates", "2", exit_code=0)
    line = refused("train", "--run", rolled, "--delay", "1", "--updates", "2")
    assert "--resume" in line
    assert "--overwrite" in line
    assert "trained" in refused("rollout", "--run", rolled, "--batches", "4")


@pytest.mark.train
def test_a_folder_that_is_no_run_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    refused("train", "--run", tmp_path, "--overwrite")
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


@pytest.mark.train
def test_truncated_and_foreign_shards_are_named(rolled, tmp_path):
    shard = rolled / "rollouts" / "b000001-v000000.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    assert "b000001-v000000.parquet" in refused("train", "--run", rolled, "--delay", "1", "--updates", "2", exit_code=1)
    other = tmp_path / "other"
    gmc_command("rollout", "--run", other, "--batches", "2", *SMALL, exit_code=0)
    shard.write_bytes((other / "rollouts" / shard.name).read_bytes())
    line = refused("train", "--run", rolled, "--delay", "1", "--updates", "2")
    assert "b000001-v000000.parquet" in line
    assert "run id" in line
    shard.unlink()
    gmc_command("train", "--run", rolled, "--delay", "1", "--updates", "2", exit_code=0)


@pytest.mark.train
def test_settings_that_contradict_the_shards_are_refused(rolled):
    line = refused("train", "--run", rolled, "--group-size", "4", "--delay", "1")
    assert "rollout.group_size is 2" in line
    assert "seed" in refused("train", "--run", rolled, "--seed", "7", "--delay", "1")


@pytest.mark.unit
def test_bad_problem_files(tmp_path):
    run, problems = tmp_path / "run", tmp_path / "problems.jsonl"
    problems.write_text("")
    assert "problems.jsonl" in refused("rollout", "--run", run, "--problems", problems, exit_code=1)
    problems.write_text('{"question": "1+1?", "answer": "2"}\n{"question": "1+2?"}\n')
    result = runner.invoke(
        app, ["rollout", "--run", str(tmp_path / "b"), "--problems", str(problems), "--batches", "1", *SMALL]
    )
    assert "line 2" in result.stderr
    assert "question" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.unit
def test_a_model_folder_without_weights(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    line = refused("rollout", "--run", tmp_path / "run", "--model", model, exit_code=1)
    assert str(model) in line


def _hold(run: Path, ready, release) -> None:
    with RunDirectory.open(run).lock():
        ready.set()
        release.wait(60)


@pytest.mark.process
def test_a_second_trainer_is_refused(rolled):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(rolled, ready, release))
    holder.start()
    try:
        assert ready.wait(60)
        line = refused("train", "--run", rolled, "--delay", "1", "--updates", "2", exit_code=1)
        assert str(holder.pid) in line
    finally:
        release.set()
        holder.join(60)
    gmc_command("train", "--run", rolled, "--delay", "1", "--updates", "2", exit_code=0)


@pytest.mark.train
def test_json_is_one_object_and_the_rest_is_on_stderr(tmp_path):
    run = tmp_path / "run"
    rollout = gmc_command("rollout", "--run", run, "--batches", "1", "--json", *SMALL, exit_code=0)
    assert json.loads(rollout.stdout)["responses"] == 4
    trained = gmc_command("train", "--run", run, "--delay", "0", "--updates", "1", "--json", exit_code=0)
    summary = json.loads(trained.stdout)
    assert summary["finished"] is True
    assert summary["updates"] == 1
    assert "1 of 1 updates made" in trained.stderr


@pytest.mark.train
def test_dry_run_prints_settings_that_are_a_recipe(tmp_path):
    first = gmc_command("train", "--run", tmp_path / "run", "--dry-run", "--delay", "7", exit_code=0).stdout
    recipe = tmp_path / "again.toml"
    recipe.write_text(first)
    again = gmc_command("train", "--run", tmp_path / "run", "--dry-run", "--recipe", recipe, exit_code=0).stdout
    assert tomllib.loads(again) == tomllib.loads(first)
    first_line, *lines = again.splitlines()
    assert first_line == f"# recipe again.toml: {recipe}"
    assert {line.partition("# ")[2] for line in lines if "# " in line} == {"recipe again.toml"}
    assert not (tmp_path / "run").exists()


@pytest.mark.train
def test_commands_find_each_others_settings(rolled):
    printed = gmc_command("train", "--run", rolled, "--dry-run", exit_code=0).stdout
    assert "group_size = 2" in printed
    assert "max_tokens = 8" in printed


@pytest.mark.train
def test_paths_that_cannot_be_used_are_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refused("rollout", "--run", file, "--batches", "1", *SMALL)
    assert str(file) in refused("rollout", "--run", file / "run", "--batches", "1", *SMALL, exit_code=1)
    assert "no such file" in refused("train", "--run", tmp_path / "run", "--delay", "schedule:nowhere.parquet")


@pytest.mark.train
def test_infinite_settings_are_refused(tmp_path):
    assert "rollout.temperature" in refused("train", "--run", tmp_path / "run", "--set", "rollout.temperature=inf")
    assert "optimizer.learning_rate" in refused("train", "--run", tmp_path / "run", "--set", "optimizer.learning_rate=nan")


@pytest.mark.process
def test_a_terminal_without_unicode_shows_formulas(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    shown = subprocess.run(
        [sys.executable, "-m", "gmc", "estimators", "show", "gmc"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stderr
    assert b"\\u03b1" in shown.stdout  # α


@pytest.mark.unit
def test_a_failed_first_command_does_not_bind_the_run(tmp_path):
    run, problems = tmp_path / "run", tmp_path / "mine.jsonl"
    problems.write_text('{"strange": "1+1", "other": "2"}\n')
    gmc_command("rollout", "--run", run, "--problems", problems, "--prompts", "3", "--seed", "5", exit_code=1)
    result = gmc_command("rollout", "--run", run, "--dry-run", "--json", exit_code=0)
    settings = json.loads(result.stdout)
    assert (settings["seed"], settings["problems"]["source"], settings["rollout"]["prompts"]) == (0, "arithmetic", 8)
    gmc_command("rollout", "--run", run, *SMALL, "--batches", "1", exit_code=0)


@pytest.mark.train
def test_damaged_settings_are_named(tmp_path):
    run = tmp_path / "run"
    (run / "settings").mkdir(parents=True)
    (run / "settings" / "rollout.toml").write_text("settings = 3\n")
    (run / "rollouts").mkdir()
    (run / "rollouts" / "b000000-v000000.parquet").touch()
    result = gmc_command("train", "--run", run, exit_code=1)
    assert "rollout.toml: damaged" in result.stderr


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--set", "seed=true"], ["seed = True", "whole number"]),
        (["train", "--set", "rollout.prompts=true"], ["rollout.prompts = True"]),
        (["train", "--set", "rollout.prompts=2.0"], ["rollout.prompts = 2.0"]),
        (["train", "--set", "model.device=foo"], ["model.device = foo", "auto"]),
        (["train", "--set", "model.device=meta"], ["model.device = meta"]),
        (["train", "--set", "model.source=\udcff", "--dry-run"], ["is not UTF-8 text"]),
        (["rollout", "--problems", ""], ["--problems is empty"]),
        (["rollout", "--max-tokens", "100000"], ["rollout.max_tokens", "context"]),
        (["eval", "--bench", ""], ["--bench is empty"]),
        (["eval", "--model", "embedded", "--seed", "-1"], ["eval.seed = -1"]),
    ],
)
def test_values_without_a_meaning_are_refused_in_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(*arguments)
    assert all(word in line for word in words), line


@pytest.mark.process
@pytest.mark.parametrize("closing", [">&-", "<&- >/dev/null", "> /dev/full"])
def test_closed_and_full_streams_are_no_traceback(closing, tmp_path):
    command = f"{sys.executable} -m gmc grade --gold 1 --response - --json {closing}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, input="1", capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.returncode == 0) == ("full" not in closing)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ("train --set train.update=3", "train.updates"),
        ("train --set learning_rate=3", "optimizer.learning_rate"),
        ("train --estimator gmcc", "gmc"),
        ("train --set estimator.epsilonn=1", "epsilon"),
        ("train --delay rampp:3", "ramp"),
        ("train --engine transformer", "transformers"),
        ("train --reward mth", "math"),
        ("train --reward math(strit=False)", "strict"),
        ("train --recipe lab-delay-swep", "lab-delay-sweep"),
        ("train --set problems.template=math-two-shot-v2", "math-two-shot-v1"),
        ("train --dely 3", "--delay"),
        ("eval --model embedded --bench math50", "math500"),
        ("eval --model embedded --bench paper-sx", "paper-six"),
        ("estimators show tik", "tic"),
        ("delays show blok", "block"),
        ("rewards show lenght", "length"),
        ("trian", "train"),
    ],
)
def test_the_nearest_name_is_offered(arguments, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(*arguments.split()).lower()
    assert f"did you mean {near}?" in line.replace("'", "") or f"possible options: {near}" in line
