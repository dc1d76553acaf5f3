"""Anybody's functions as tools: what the model is told of them, what their calls give, and what becomes of one that fails."""

import json
import logging
import os
import sys
import time

import pytest
from training_runs import small_settings, train_run
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.environments import calling
from gmc.environments.base import ASSISTANT, Turn
from gmc.environments.build import build_environment, complete
from gmc.environments.calling import CallError, read_call
from gmc.environments.functions import ToolError
from gmc.environments.tools import Tools
from gmc.errors import UsageError
from gmc.problems.base import Problem
from gmc.testing import check_environment

CODE = '''
"""Tools for a test."""
import asyncio, math, os, time
from fractions import Fraction


def add(a: int, b: int = 1) -> int:
    """The sum of
    two numbers."""
    print("a line that is no answer")
    return a + b


async def divide(a: int, b: int) -> Fraction:
    """a / b, exactly."""
    await asyncio.sleep(0)
    return Fraction(a, b)


def sleep(seconds):
    """Wait."""
    time.sleep(seconds)


def spin():
    """Compute for ever."""
    while True:
        try:
            math.factorial(200)
        except BaseException:
            pass


def leave(code):
    """End the process."""
    os._exit(code)


def polite_leave():
    """End the process as programs do."""
    raise SystemExit(3)


def fork():
    """Leave a process behind that holds the pipes."""
    if os.fork() == 0:
        time.sleep(60)
    return os.getpid()


def letters(count):
    """Many letters."""
    return "x" * count


def listen():
    """Read standard input."""
    return input()


def odd():
    """Half a character, and nothing."""
    return chr(0xD800) + "\\x00"


def _private():
    pass
'''
NAMES = "add, divide, sleep, spin, leave, polite_leave, fork, letters, listen, odd"
PROBLEM = Problem("p", "What is $3+4$?", "7")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_tools.py"
    path.write_text(CODE)
    return path


def replies(environment, *calls):
    """What each call is answered, in one episode a call."""
    found = []
    for call in calls:
        episode = environment.start(PROBLEM)
        text = f"so <tool>{call}</tool>"
        episode.turns.append(Turn(ASSISTANT, text))
        found.append(environment.reply(episode, text).removeprefix("<result>").removesuffix("</result>"))
    return found


@pytest.mark.process
def test_the_model_is_told_signatures_and_docstrings_and_calls_as_python_or_json(file):
    tools = build_environment(f"tools(functions={file})")
    assert tools.start(PROBLEM).question.splitlines()[:4] == [
        "What is $3+4$?",
        "You may call these functions by writing <tool>name(arguments)</tool>; the result follows as <result>…</result>.",
        "add(a: int, b: int = 1) -> int: The sum of two numbers.",
        "divide(a: int, b: int) -> fractions.Fraction: a / b, exactly.",
    ]
    assert "_private" not in tools.start(PROBLEM).question
    calls = {
        "add(2, b=3)": "5",
        " add(2)\n": "3",
        '{"name": "add", "arguments": {"a": 2, "b": 40}}': "42",
        "divide(1, 3)": "1/3",
        "divide(1, 0)": "error: ZeroDivisionError: Fraction(1, 0)",
        "add()": "error: add: missing a required argument: 'a'",
        "add('x', 1)": 'error: TypeError: can only concatenate str (not "int") to str',
        "remove(1)": f"error: no function remove; there are {NAMES}",
        "_private()": f"error: no function _private; there are {NAMES}",
        "add(2": "error: not a call; write name(arguments) with plain values",
        "listen()": "error: EOFError: EOF when reading a line",
        "odd()": "?\x00",
    }
    assert dict(zip(calls, replies(tools, *calls), strict=True)) == calls
    tools.close()
    some = build_environment(f"tools(functions='{file}:divide', explain='Use {{functions}}')")
    assert some.start(PROBLEM).question.endswith("\nUse divide(a: int, b: int) -> fractions.Fraction: a / b, exactly.")
    assert replies(some, "add(1)") == ["error: no function add; there are divide"]
    some.close()


@pytest.mark.process
def test_every_call_ends_in_time_and_the_first_failure_of_a_kind_is_logged(file, caplog):
    caplog.set_level(logging.WARNING)
    tools = build_environment(f"tools(functions={file}, seconds=1, characters=10)")
    tools.start(PROBLEM)
    started = time.monotonic()
    calls = {
        "sleep(60)": "error: no result within 1 s",
        "spin()": "error: no result within 1 s",
        "leave(7)": "error: its process ended with exit code 7",
        "polite_leave()": "error: SystemExit: 3",
        "letters(10)": "xxxxxxxxxx",
        "letters(11)": "xxxxxxxxxx… (cut at 10 characters)",
        "leave(8)": "error: its process ended with exit code 8",
        "add(1)": "2",
    }
    assert dict(zip(calls, replies(tools, *calls), strict=True)) == calls
    assert time.monotonic() - started < 30
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 5  # leave(7) and leave(8) are of two kinds
    assert words[0] == f"tool sleep of {file}: no result within 1 s; the model is told, from now on without a word here"
    (left,) = replies(tools, "fork()")
    tools.close()
    assert not is_alive(int(left))


def is_alive(leader):
    """Whether anything of a process group still runs."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.process
def test_functions_keep_the_contract_of_environments(file, monkeypatch):
    monkeypatch.setattr("gmc.testing.environments.TEXTS", ("<tool>add(1)</tool>", "7"))  # a process an episode
    check_environment(Tools, {"functions": str(file)})


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("f(1, 'a', [2], x=None)", ("f", [1, "a", [2]], {"x": None})),
        ('{"name": "f", "arguments": {"x": true}}', ("f", [], {"x": True})),
        ('{"name": "f"}', ("f", [], {})),
    ],
)
def test_a_call_is_read_as_a_literal(text, call):
    assert read_call(text) == call


HOSTILE = [
    "", "f", "f(", "f(x)", "f(open('/etc/passwd'))", "__import__('os').system('true')", "f(*[1])", "f(**{'a': 1})", "f(1)(2)",
    "(lambda: 0)()", "f(1) + 1", "f(" + "(" * 300 + ")" * 300 + ")", "f(" + "[" * 3000 + "]" * 3000 + ")", "x" * 20_000,
    '{"arguments": {}}', '{"name": "f", "arguments": [1]}', "{" * 5000, '{"name": "f", "arguments": 3}', "f('\x00')\x00",
]  # fmt: skip


@pytest.mark.unit
@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_call_is_never_evaluated(text):
    with pytest.raises(CallError):
        read_call(text)


@pytest.mark.unit
def test_a_spec_is_completed_with_the_whole_path_and_needs_no_quotes(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    whole = complete("tools(functions=my_tools.py)")
    assert whole.startswith(f"tools(functions='{file}', calls=8, ")
    assert complete(whole) == whole == complete(f"tools(functions={file})") == complete("tools(functions='./my_tools.py')")
    assert complete("tools(functions=my_tools.py:add, calls=2)").startswith(f"tools(functions='{file}:add', calls=2, ")
    assert complete("tools(functions=json)").startswith("tools(functions='json', ")
    settings = small_settings("rollout.environment=tools(functions=my_tools.py)")
    assert settings.rollout.environment == whole
    (line,) = settings.rollout.environment_code
    assert line.endswith(f" {file}")
    assert small_settings("rollout.environment=tools").rollout.environment_code == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tools(functions=gone.py)", "tools(functions='gone.py'): gone.py: No such file or directory"),
        ("tools(functions=my_tools.py:sub)", "my_tools.py defines no sub; it defines Fraction, add, "),
        ("tools(functions='my_tools.py:a b')", "write it as my_tools.py, package.module or my_tools.py:add,subtract"),
        ("tools(functions=no_such_package)", "no module no_such_package is installed; a file is written no_such_package.py"),
        ("tools(functions=broken.py)", "broken.py is no Python file: SyntaxError"),
    ],
)
def test_functions_that_are_not_there_are_refused_in_one_line(file, monkeypatch, spec, words):
    monkeypatch.chdir(file.parent)
    (file.parent / "broken.py").write_text("def f(:\n")
    with pytest.raises(UsageError) as caught:
        complete(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f(x):\n    return x\n", "f has no docstring, which is what the model is told of it; write one"),
        ("x = 1\n", "defines no function; define one"),
        ("raise ValueError('on\\nimport')\n", "cannot be imported: ValueError: on import (bad.py, line 1)"),
        ("__all__ = ['f', 'gone']\ndef f():\n    'F.'\n", "__all__ names gone, which is not defined there"),
        ("__all__ = 5\n", "__all__ is 5, not a list of names"),
        ("__all__ = [5]\n", "__all__ is [5], not a list of names"),
        ("f = 5\n__all__ = ['f']\n", "f is int, not a function"),
        ("def f():\n    pass\nf.__doc__ = '\\ud800'\n", "docstring or signature of f holds half of a surrogate pair"),
        ("class Odd:\n    def __repr__(self): 1 / 0\ndef f(x=Odd()):\n    'F.'\n", "f has no signature that Python can tell"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, monkeypatch, code, words):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "bad.py").write_text(code)
    said = calling._answer({"load": [str(tmp_path / "bad.py"), []]}, {}, print)["refused"]
    assert said.startswith(f"{tmp_path}/bad.py")
    assert words in said
    assert "\n" not in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f(x):\n    return x\n", "f has no docstring, which is what the model is told of it; write one"),
        ("import os\nos._exit(3)\n", "its process ended with exit code 3 while /"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_command_before_anything_is_sampled(tmp_path, code, words):
    (tmp_path / "bad.py").write_text(code)
    with pytest.raises(ToolError) as caught:
        train_run(tmp_path / "run", small_settings(f"rollout.environment=tools(functions={tmp_path}/bad.py)", "delay=0"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "run").glob("rollouts/*"))


@pytest.mark.process
def test_a_changed_file_is_refused_until_the_new_one_is_meant(file, tmp_path):
    first = small_settings(f"rollout.environment=tools(functions={file})")
    file.write_text(CODE + "\n")
    known = json.dumps(first.rollout.environment_code)
    with pytest.raises(UsageError, match=r"my_tools\.py: changed since the run began with it.*rollout\.environment_code=auto"):
        small_settings(f"rollout.environment={first.rollout.environment}", f"rollout.environment_code={known}")
    again = small_settings(f"rollout.environment={first.rollout.environment}", "rollout.environment_code=auto")
    assert again.rollout.environment_code != first.rollout.environment_code


@pytest.mark.process
def test_a_trial_plays_what_the_model_says_or_samples(file):
    def tried(*arguments):
        done = CliRunner().invoke(app, ["environments", "try", *map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"})
        assert done.exit_code == 0, done.output
        return done.stdout

    spec = f"tools(functions='{file}:add')"
    record = json.loads(tried(spec, "--say", "<tool>add(2, 2)</tool>", "--say", "\\boxed{4}", "--json"))
    assert record["episodes"] == [
        {
            "turns": [
                {"role": "assistant", "text": "<tool>add(2, 2)</tool>"},
                {"role": "tool", "text": "<result>4</result>"},
                {"role": "assistant", "text": "\\boxed{4}"},
            ],
            "reward": 1.0,
            "status": "correct",
        }
    ]
    assert "add(a: int, b: int = 1) -> int: The sum of two numbers." in record["prompt"]
    assert "waits for another --say" in tried("retry", "--say", "5")
    assert "0.5  (correct)" in tried("retry", "--say", "5", "--say", "\\boxed{4}")
    assert json.loads(tried("retry", "--count", 2, "--json"))["episodes"][0]["turns"][0]["role"] == "assistant"
    refused = CliRunner().invoke(app, ["environments", "try", "single", "--say", "4", "--say", "5"])
    assert refused.exit_code == 2
    assert "the episode was over with turn 1" in refused.output
