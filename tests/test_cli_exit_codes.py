"""Exit codes, command by command: 2 for wrong usage, a path with nothing there included; 1 for what is found damaged."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

NOWHERE = "nowhere"
WRONG = {
    "rollout": ["--problems nowhere.jsonl", "--model ./nowhere", "--recipe nowhere.toml", "--reward nowhere.py:f", "--resume"],
    "train": [
        "--problems nowhere.jsonl",
        "--model ./nowhere",
        "--recipe nowhere",
        "--delay schedule:nowhere",
        "--delay nowhere",
        "--rollouts nowhere --delay 0",
        "--reward nowhere.py:f",
        "--resume",
        "--delay shards",
        "--estimator nowhere",
        "--engine nowhere",
        "--set train.eval_every=5 --set train.eval_problems=nowhere.jsonl",
        "--set nowhere=1",
        "--nowhere",
        "--updates nowhere",
        "--live --set rollout.devices=['0']",
    ],
    "simulate-delay": [
        "nowhere --delay 2",
        "--lengths nowhere.parquet --delay 2",
        "--lengths lognormal:9:1 --delay schedule:nowhere",
    ],
    "status": ["--run nowhere"],
    "runs": ["nowhere"],
    "samples": ["nowhere"],
    "grade": ["--nowhere"],
    "doctor": ["--nowhere"],
    "eval": [
        "--run nowhere",
        "--model ./nowhere",
        "--model embedded --problems nowhere.jsonl",
        "--model embedded --bench nowhere",
        "--model embedded --bench math500 --bench-data nowhere",
        "--model embedded --template nowhere",
    ],
    "eval arms": ["nowhere"],
    "eval compare": ["nowhere.json nowhere.json"],
    "lab exact": ["--estimator nowhere"],
    "lab toy": ["--estimator nowhere"],
    "lab step": ["--estimator nowhere"],
    "lab sweep": ["nowhere.toml"],
    "lab report": ["nowhere", "nowhere.jsonl"],
    "estimators": ["--nowhere"],
    "estimators list": ["--nowhere"],
    "estimators show": ["nowhere"],
    "estimators new": ["not/a/name"],
    "estimators compare": ["nowhere --model embedded"],
    "delays": ["--nowhere"],
    "delays list": ["--nowhere"],
    "delays show": ["nowhere"],
    "delays new": ["not/a/name"],
    "rewards": ["--nowhere"],
    "rewards list": ["--nowhere"],
    "rewards show": ["nowhere"],
    "rewards try": ["nowhere", "nowhere.py:f", "math --problems nowhere.jsonl"],
    "rewards new": ["not/a/name"],
    "environments": ["--nowhere"],
    "environments list": ["--nowhere"],
    "environments show": ["nowhere"],
    "environments try": ["nowhere", "retry --problems nowhere.jsonl"],
    "environments new": ["not/a/name"],
    "export": ["nowhere --to out"],
    "fleet": ["nowhere.toml"],
    "shards import": ["nowhere.parquet --out out"],
    "shards check": ["nowhere", "nowhere.parquet"],
}


def commands(command, path=()):
    """Every command that does something, as it is typed."""
    below = getattr(command, "commands", None)
    if not below or command.invoke_without_command:
        yield " ".join(path)
    for name, each in (below or {}).items():
        yield from commands(each, (*path, name))


def invoke(command, arguments=""):
    return CliRunner().invoke(app, [*command.split(), *arguments.split()])


def test_the_table_has_every_command():
    assert set(WRONG) == {name for name in commands(get_command(app)) if name}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [pytest.param(command, row, id=f"{command} {row}") for command, rows in WRONG.items() for row in rows],
)
def test_wrong_usage_is_one_line_and_2_and_leaves_nothing(command, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(command, arguments)
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert (result.exit_code, type(result.exception)) == (2, SystemExit), line
    named = [part for part in arguments.replace("=", " ").replace(":", " ").split() if part.strip("./").startswith(NOWHERE)]
    assert "--updates" in arguments or all(name in line for name in named), line
    assert not list(tmp_path.rglob("*.parquet"))


DAMAGED = {
    "rollout": "--problems damaged.jsonl",
    "train": "--problems damaged.jsonl --delay 0",
    "simulate-delay": "--lengths damaged.parquet --delay 2",
    "status": "--run damaged",
    "samples": "damaged",
    "eval": "--model embedded --problems damaged.jsonl",
    "eval arms": "damaged",
    "eval compare": "damaged.json damaged.json",
    "lab report": "damaged.jsonl",
    "rewards try": "math --problems damaged.jsonl",
    "shards import": "damaged.parquet --out out",
    "shards check": "damaged.parquet",
}


@pytest.mark.parametrize("command", DAMAGED)
def test_a_damaged_file_is_one_line_and_1(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ending in ("jsonl", "json", "parquet"):
        (tmp_path / f"damaged.{ending}").write_text("{this is nothing\n{nor is this\n")
    run = RunDirectory.create(tmp_path / "damaged", model="embedded", seed=0)
    (run.path / "run.toml").write_text("run_id = ")
    result = invoke(command, DAMAGED[command])
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), line
    assert "damaged" in line


def test_a_command_that_did_what_was_asked_ends_with_0():
    assert invoke("grade", r"--gold 1 --response \boxed{1}").exit_code == 0
    assert invoke("delays show ramp").exit_code == 0
    assert invoke("--version").exit_code == 0
