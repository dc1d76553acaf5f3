"""Requests that say two things at once, or name what is no file or no text: one line, exit code 2, before anything is made."""

import os

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app

pytestmark = pytest.mark.unit

CASES = {
    "two ways to resume": (["train", "--resume", "--auto-resume"], "give one of them"),
    "two ways to resume rollouts": (["rollout", "--resume", "--auto-resume"], "give one of them"),
    "a device of problems": (["rollout", "--problems", "/dev/null"], "/dev/null: a device or a pipe"),
    "a pipe of problems": (["rollout", "--problems", "PIPE.jsonl"], "PIPE.jsonl: a device or a pipe"),
    "a device as recipe": (["rollout", "--recipe", "/dev/zero"], "--recipe /dev/zero: a device or a pipe"),
    "a folder as recipe": (["rollout", "--recipe", "/usr"], "a folder, and a file is needed"),
    "a pipe as reward": (["rollout", "--reward", "PIPE.py:f"], "PIPE.py: a device or a pipe"),
    "a pipe as tools": (["rollout", "--environment", "tools(functions=PIPE.py)"], "PIPE.py: a device or a pipe"),
    "a pipe as schedule": (["train", "--delay", "schedule:PIPE.py"], "schedule:PIPE.py: a device or a pipe"),
    "a folder as schedule": (["train", "--delay", "schedule:/usr"], "schedule:/usr: a folder, and a file is needed"),
    "a folder as tools": (["rollout", "--environment", "tools(functions=FOLDER.py)"], "FOLDER.py: a folder, and a file is"),
    "a folder as reward": (["rollout", "--reward", "FOLDER.py:f"], "FOLDER.py: a folder, and a file is needed"),
    "a module that runs": (["rollout", "--reward", "__main__:f"], "no module __main__ is installed"),
    "tools of what runs": (["rollout", "--environment", "tools(functions='__main__')"], "no module __main__ is installed"),
    "a deep reward": (["rollout", "--reward", "DEEP.py:f"], "DEEP.py is no Python file: "),
    "a long sum": (["rollout", "--reward", "SUM.py:f"], "SUM.py is no Python file: "),
    "deep arguments": (["rollout", "--reward", f"x.py:f({'-' * 90_000}1)"], "they cannot be read"),
    "a pipe of lengths": (
        ["simulate-delay", "--lengths", "PIPE.jsonl", "--delay", "3"],
        "PIPE.jsonl: a device or a pipe",
    ),
    "problems without a name": (["rollout", "--set", 'problems.source="\\u0000"'], "--problems is empty"),
    "a model without a name": (["rollout", "--set", "model.source="], "model.source = '': name a Hugging Face model folder"),
    "a model of no text": (["rollout", "--set", 'model.source="a\\u0000b"'], "model.source = 'a\\x00b': name a"),
    "no temperature": (["rollout", "--temperature", "1e-300"], "rollout.temperature = 1e-300: give at least 0.001"),
    "hardly greedy": (
        ["train", "--set", "eval.temperature=1e-300"],
        "give 0, which is greedy, or at least 0.001",
    ),
    "a delay beyond reason": (["train", "--delay", "length:1e300"], "the clock is 1e300, outside 0 to 1,000,000"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_odd_request_is_one_line(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    for name in ("PIPE.py", "PIPE.jsonl"):
        os.mkfifo(name)
    (tmp_path / "FOLDER.py").mkdir()
    (tmp_path / "DEEP.py").write_text(f"x = {'-' * 100_000}1\n")
    (tmp_path / "SUM.py").write_text(f"x = {'1+' * 100_000}1\n")
    command, words = CASES[case]
    result = CliRunner().invoke(app, command)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert (result.exit_code, words in line) == (2, True), line
    assert {path.name for path in tmp_path.iterdir()} == {"PIPE.py", "PIPE.jsonl", "DEEP.py", "FOLDER.py", "SUM.py"}
