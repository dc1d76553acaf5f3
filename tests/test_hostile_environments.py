"""Environments and functions of every bad kind: each ends in one line with its name, or in the right result."""

import asyncio
import contextlib
import logging
import os
import signal
import time

import pytest
from kept_worker import kept_workers
from test_episodes import PROBLEMS, Scripted, play
from tiny_models import tiny_model

from gmc.environments import build, watching
from gmc.environments.base import Environment, Episode, Turn
from gmc.environments.build import build_environment
from gmc.environments.limits import EnvironmentFailedError, called
from gmc.errors import GmcError, UsageError
from gmc.problems.base import Problem
from gmc.rewards.base import Sample, Score
from gmc.rewards.build import build_reward


class Own(BaseException):
    """What no `except Exception` catches."""


class UnspeakableError(Exception):
    """An error that cannot be told."""

    def __str__(self):
        raise ValueError("no words")


def throw(error):
    def raiser(*_):
        raise error

    return raiser


def hang(*_):
    while True:
        time.sleep(0.01)


def print_much(*_):
    print("x" * 100_000)
    os.chdir("/")


SHARED = Episode(PROBLEMS[0], "1+2")
BEGUN = Episode(PROBLEMS[0], "1+2", [Turn("user", "hello")])
ERRORS = {
    "raises": ValueError("a\nb"),
    "exits": SystemExit(0),
    "cancels": asyncio.CancelledError("gone"),
    "own kind": Own("x"),
    "stops": StopIteration(3),
    "generator": GeneratorExit(),
    "no words": UnspeakableError(),
    "no memory": MemoryError(),
    "recursion": RecursionError("too deep"),
    "asserts": AssertionError(),
}
ODD = {
    "start": [None, {}, "1+2", 7, SHARED, BEGUN, Episode(PROBLEMS[0], None), Episode, Episode(PROBLEMS[0], "\ud800")],
    "reply": [7, b"more", ["more"], True, 1.5, {"text": "x"}, "\ud800", object()],
    "worth": [
        None,
        1.0,
        "1",
        Score(float("nan"), "x"),
        Score(float("inf"), "x"),
        Score(1e39, "x"),
        Score("1", "x"),
        Score(None, "x"),
        Score(1.0, 5),
        Score(1.0, "\ud800"),
        Score(1.0, "x", note=b"x"),
        Score(1.0, "x", parts={3: 1.0}),
    ],
}
CASES = [
    *((f"{where} {name}", where, throw(error)) for where in ODD for name, error in ERRORS.items()),
    *((f"{where} gives {n}", where, lambda *_, value=odd[n]: value) for where, odd in ODD.items() for n in range(len(odd))),
    *((f"{where} hangs", where, hang) for where in ODD),
]


class Bad(Environment):
    """Does one thing in one place."""

    name = "bad"
    summary = "is bad"

    def __init__(self, where, act):
        super().__init__()
        self.where, self.act = where, act
        if act is hang:  # only what is to be ended: a slow machine ends no other call, in the middle of collecting garbage
            self.seconds = 0.2

    def start(self, problem):
        return self.act() if self.where == "start" else super().start(problem)

    def reply(self, episode, text):
        return self.act() if self.where == "reply" else None

    def worth(self, episode, score):
        return self.act() if self.where == "worth" else score


@pytest.mark.unit
@pytest.mark.parametrize(("where", "act"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_call_is_one_line_with_its_name(where, act):
    model = tiny_model()
    with pytest.raises(EnvironmentFailedError) as caught:
        play(model, Bad(where, act), engine=Scripted([5, 1], [5, 1]), group_size=2, problems=PROBLEMS[:1])
    said = str(caught.value)
    assert said.startswith(f"environment bad, problem a: {where}")
    assert "--resume" in said
    assert len(said.splitlines()) == 1


class Unready(Bad):
    """Does it before anything is made."""

    @property
    def files(self):
        return self.act() if self.where == "files" else ()

    def completed(self):
        return self.act() if self.where == "completed" else self.settings


UNREADY = [
    *((f"{where} {name}", where, throw(error)) for where in ("files", "completed") for name, error in ERRORS.items()),
    *(
        (f"{where} {act.__name__}", where, act)
        for where in ("files", "completed")
        for act in (hang, lambda: None, lambda: (5,))
    ),
]


@pytest.mark.unit
@pytest.mark.parametrize(("where", "act"), [case[1:] for case in UNREADY])
def test_a_bad_declaration_is_one_line_with_its_name(monkeypatch, where, act):
    monkeypatch.setattr(build, "build_environment", lambda text: Unready(where, act))
    with pytest.raises(UsageError) as caught:
        build.code_files("bad") if where == "files" else build.complete("bad")
    said = str(caught.value)
    assert said.startswith(f"--environment bad: {where} ")
    assert len(said.splitlines()) == 1


class Says(Environment):
    """Says something of itself."""

    name = "bad"
    summary = "is bad"

    def __init__(self, where, act):
        super().__init__()
        cls = type("Says", (Says,), {where: property(lambda _: act()) if callable(act) else act})
        self.__class__ = cls
        if act is hang:
            self.seconds = 0.2

    def reply(self, episode, text):
        return None


STOPS = [5, None, "ab", (5,), ("",), (b"x",), ("\ud800",), {"a": 1}, hang, *map(throw, ERRORS.values())]
DECLARED = [
    *(("stop", act) for act in STOPS),
    *((name, act) for name in ("keeps_rewards", "replies", "inline", "scores_turns") for act in (None, 1, throw(Own("x")))),
    *(("role", act) for act in (None, 5, throw(Own("x")))),
]


@pytest.mark.unit
@pytest.mark.parametrize(("where", "act"), DECLARED)
def test_what_an_environment_says_of_itself_is_looked_at_before_anything_is_made(monkeypatch, where, act):
    monkeypatch.setattr(build, "build_environment", lambda text: Says(where, act))
    with pytest.raises(UsageError, match=rf"^--environment bad: {where} [^\n]*; repair the environment$"):
        build.complete("bad")


@pytest.mark.unit
def test_a_stop_that_is_none_is_refused_where_it_is_used():
    with pytest.raises(UsageError, match=r"^--environment bad: stop gave 5, not a tuple of texts"):
        play(tiny_model(), Says("stop", 5), engine=Scripted([5, 1]), group_size=1, problems=PROBLEMS[:1])


@pytest.mark.unit
def test_what_a_call_prints_and_where_it_goes_changes_no_result(capsys):
    before = os.getcwd()
    with called(Bad("", None), "p", "start"):
        print_much()
    assert os.getcwd() == before
    assert capsys.readouterr().out == ""


@pytest.mark.process
def test_a_forked_child_that_comes_back_is_ended():
    with called(Bad("", None), "p", "reply"):
        child = os.fork()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def swallow_every_end():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(1)


def ignore_the_alarm():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)


def clear_the_alarm():
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(60)


def close_a_file():
    os.close(watching.watch._witness)  # pytest needs the others to hear of it


NOTHING = "cannot be ended, whatever is tried; the process ends"
ENDING_THE_PROCESS = {
    swallow_every_end: NOTHING,
    ignore_the_alarm: NOTHING,
    clear_the_alarm: NOTHING,
    close_a_file: "closed files that it had not opened; the process ends",
}


@pytest.mark.process
@pytest.mark.parametrize("act", ENDING_THE_PROCESS)
def test_a_call_after_which_nothing_goes_on_ends_the_process(monkeypatch, capfd, act):
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.01)
    child = os.fork()
    if child == 0:
        logging.getLogger("gmc").addHandler(logging.StreamHandler())
        environment = Bad("", None)
        environment.seconds = 0.05
        with called(environment, "p", "reply"):
            act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert f"environment bad, problem p: reply {ENDING_THE_PROCESS[act]}" in capfd.readouterr().err


@pytest.mark.unit
@pytest.mark.parametrize("act", [hang, lambda: None, throw(ValueError("x"))])
def test_a_call_is_watched_until_it_is_over(act):
    environment = Bad("reply", act)
    with contextlib.suppress(EnvironmentFailedError), called(environment, "p", "reply"):
        assert watching.watch._call[1] == "environment bad, problem p: reply"
        act()
    assert watching.watch._call is None


FUNCTIONS = {
    "raises": ("raise ValueError('a\\nb')", "error: ValueError: a b"),
    "exits": ("raise SystemExit(0)", "error: SystemExit: 0"),
    "leaves": ("os._exit(3)", "error: its process ended with exit code 3"),
    "kills itself": ("os.kill(os.getpid(), 9)", "error: its process was ended by SIGKILL"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "error: its process was ended by SIGSEGV"),
    "cancels": ("raise asyncio.CancelledError('x')", "error: CancelledError: x"),
    "hangs": ("time.sleep(60)", "error: no result within 0.2 s"),
    "floods": ("while True: print('x' * 10000)", "error: no result within 0.2 s"),
    "prints": ("print('x' * 10**7); return 5", "5"),
    "writes to 1": ("os.write(1, b'{}\\n'); return 5", "5"),
    "forks": ("os.fork(); return 5", "5"),
    "no text": ("return object", "<class 'object'>"),
    "nothing": ("return None", "None"),
    "much": ("return 'x' * 10**6", "x" * 50 + "… (cut at 50 characters)"),
    "surrogate": ("return '\\ud800'", "?"),
    "no words": ("""
    class Odd:
        def __str__(self): raise RuntimeError('mute')
    return Odd()""", "error: RuntimeError: mute"),
    "closes all": ("os.closerange(0, 100); return 5", "error: its process ended with exit code"),
    "real time": ("os.kill(os.getpid(), 40)", "error: its process was ended by signal 40"),
    "junk": ("[_junk(n) for n in range(3, 30)]", "error: its process wrote something else than an answer"),
    "thread": ("threading.Thread(target=time.sleep, args=(60,)).start(); return 5", "5"),
}  # fmt: skip


@pytest.mark.process
def test_bad_functions_are_the_model_s_business(tmp_path, monkeypatch):
    code = "import asyncio, os, threading, time\ndef _junk(n):\n    try: os.write(n, b'junk\\n')\n    except OSError: pass\n"
    for number, (body, _) in enumerate(FUNCTIONS.values()):
        code += f'def f{number}():\n    "Bad."\n    {body}\n'
    (tmp_path / "bad.py").write_text(code)
    environment = build_environment(f"tools(functions={tmp_path}/bad.py, seconds=60, characters=50)")
    try:
        for number, (name, (_, wanted)) in enumerate(FUNCTIONS.items()):
            monkeypatch.setattr(environment._functions, "_seconds", 0.2 if "no result within" in wanted else 60.0)
            for _ in range(2):  # also after it was ended, and with no answer of an earlier call left over
                episode = environment.start(PROBLEMS[0])
                said = f"<tool>f{number}()</tool>"
                episode.turns.append(Turn("assistant", said))
                answer = environment.reply(episode, said)
                assert answer.startswith(f"<result>{wanted}"), (name, answer)
    finally:
        environment.close()


REWARDS = {
    "1e39": ("[1e39] * n", r"a reward is 1e\+39, and rewards are trained on within ±1e\+16; divide"),
    "-3e38": ("[-3e38] * n", r"a reward is -3e\+38, and .*±1e\+16"),
    "nan": ("[float('nan')] * n", "a reward is nan; give a finite number"),
    "inf": ("[float('inf')] * n", "a reward is inf; give a finite number"),
    "text": ("['x'] * n", r"a reward is 'x' \(str\), not a number"),
    "odd": ("[Odd()] * n", r"\(Odd\), not a number"),
    "endless": ("itertools.count()", "it gave more than 2 rewards for 2 responses"),
    "few": ("[]", "it gave 0 rewards for 2 responses"),
    "no list": ("None", "TypeError: 'NoneType' object is not iterable"),
    "leaves": ("os._exit(3)", "its process ended with exit code 3"),
    "flood": ("[print('x' * 10**7) or 1.0 for _ in range(n)]", ""),
    "forks": ("[os.fork() * 0.0 for _ in range(n)]", ""),
    "real time": ("os.kill(os.getpid(), 40)", "its process was ended by signal 40"),
    "says x": ("setattr(json, 'dumps', lambda *_, **__: 'x')", "its process wrote something else than an answer"),
    "says 5": ("setattr(json, 'dumps', lambda *_, **__: '5')", "its process wrote something else than an answer"),
    "says {}": ("setattr(json, 'dumps', lambda *_, **__: '{}')", "its process wrote something else than an answer"),
    "much": ("[sys.stderr.write('x' * 9000), os._exit(3)]", r"exit code 3: x{300}… "),
    "closes": ("[os.closerange(1, 99), time.sleep(60)]", "closed its output without an answer, and was ended"),
    "half": ("_['log_metric']('\\ud800', 1.0)", r"ValueError: '\\ud800' is logged, and UTF-8 cannot write it"),
    "half extra": ("_['log_extra']('x', ['\\ud800'] * n)", r"ValueError: '\\ud800' is logged, and UTF-8 cannot"),
    "empties": ("completions.clear() or []", "it gave 0 rewards for 2 responses"),
    "one text": ("'12'", "it gave one str, not a list of rewards"),
    "one record": ("{1: 2, 3: 4}", "it gave one dict, not a list of rewards"),
    "says more": ("setattr(json, 'dumps', lambda *_, **__: '{\"rewards\": [1, 1]}')", "its process wrote something else"),
    "not binary": ("[2.5] * n", "it says of itself that it is binary, and a reward is 2.5"),
    "whole": ("[10**400] * n", "a reward is an integer too large"),
}


@pytest.mark.process
def test_bad_reward_functions_are_named_with_the_problem(tmp_path, monkeypatch):
    file = tmp_path / "bad.py"
    code = "import itertools, json, os, sys, time\nclass Odd:\n    def __float__(self): raise RuntimeError('mute')\n"
    for number, (name, (body, _)) in enumerate(REWARDS.items()):
        code += f"def f{number}(completions, **_):\n    n = len(completions)\n    return {body}\n"
        if name == "not binary":
            code += f"f{number}.binary = True\n"
    file.write_text(code)
    samples = [Sample(Problem("p7", "q", "1"), "q", "1", [1])] * 2
    with kept_workers():
        for number, (name, (_, words)) in enumerate(REWARDS.items()):
            if name == "closes":  # what ends by itself has longer
                monkeypatch.setattr("gmc.rewards.process.ENDING_SECONDS", 0.1)
            reward = build_reward([f"{file}:f{number}"])
            if not words:
                assert len({score.reward for score in reward.score(samples)}) == 1, name
                assert len(reward.score(samples)) == 2
            else:
                with pytest.raises(GmcError, match=words) as caught:
                    reward.score(samples)
                assert f"bad.py:f{number}" in str(caught.value)
                assert "(on problem p7). Repair it and go on with --resume" in str(caught.value)
            reward.close()
            monkeypatch.undo()


@pytest.mark.process
@pytest.mark.parametrize("spec", ["reward", "tools"])
def test_an_import_that_hangs_is_said_and_ended(tmp_path, monkeypatch, caplog, spec):
    monkeypatch.setattr("gmc.rewards.function.START_SECONDS", 0.6)
    monkeypatch.setattr("gmc.registry.SAID_SECONDS", 0.05)
    file = tmp_path / "slow.py"
    file.write_text("def f(completions):\n    'Slow.'\n    return [1.0]\nimport time\ntime.sleep(60)\n")
    caplog.set_level("INFO", "gmc")
    reward, environment = build_reward([f"{file}:f"]), build_environment(f"tools(functions={file})")
    with pytest.raises(GmcError, match=r"slow\.py took longer than 0\.6 s and was stopped; do there what is quick"):
        reward.start() if spec == "reward" else environment.start(PROBLEMS[0])
    assert any(f"still importing {file} for --" in record.message for record in caplog.records)
