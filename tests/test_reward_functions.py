"""Functions in TRL's convention as rewards: what they are given, what they may give, and what becomes of one that fails."""

import datetime
import decimal
import json
import time
from dataclasses import replace

import pytest
from kept_worker import kept_workers

from gmc.errors import GmcError
from gmc.problems.base import Problem
from gmc.rewards.base import NOT_APPLICABLE, Sample, TrainerState
from gmc.rewards.build import build_reward
from gmc.rewards.process import Worker
from gmc.rewards.wire import dumps, loads

pytestmark = pytest.mark.process

CODE = """
import asyncio, os, sys, time

def short(completions, **columns):
    print("a line that is no answer")
    return [1.0 / (1 + len(text)) for text in completions]

def by_level(prompts, completions, completion_ids, level, answer, trainer_state, log_extra, log_metric):
    assert len(prompts) == len(completions) == len(completion_ids)
    log_extra("level", level)
    log_metric("mean_length", sum(map(len, completion_ids)) / len(completion_ids))
    return [None if one is None else one + trainer_state.global_step / trainer_state.max_steps for one in level]

async def slowly(completions, **columns):
    async def one(text):
        await asyncio.sleep(0.01)
        return len(text)
    return await asyncio.gather(*map(one, completions))

def roles(prompts, completions, **columns):
    return [float(p[-1]["role"] == "user" and c[0]["role"] == "assistant" and c[0]["content"] == "abc")
            for p, c in zip(prompts, completions)]

def power(base, *, exponent=1):
    class Power:
        binary = True
        def __call__(self, completions, **columns):
            return [float(base ** exponent == len(text)) for text in completions]
    return Power()

def kinds(completions, when, price, blob, **columns):
    wanted = ("date", "Decimal", bytes([0, 255]))
    return [float((type(w).__name__, type(p).__name__, b) == wanted) for w, p, b in zip(when, price, blob)]

def raises(completions, **columns):
    return [1 // (len(text) - 3) for text in completions]

def few(completions, **columns):
    return [1.0]

def nan(completions, **columns):
    return [float("nan") for _ in completions]

def words(completions, **columns):
    return ["good" for _ in completions]

def astronomic(completions, **columns):
    return [10 ** 5000 for _ in completions]

def forever(completions, **columns):
    while "abc" in completions:
        time.sleep(0.01)
    return [0.0 for _ in completions]

def dies(completions, **columns):
    print("last words", file=sys.stderr)
    os._exit(7)

def leaves(completions, **columns):
    sys.exit("no key")

def leaving():
    sys.exit(0)

number = 3
"""


@pytest.fixture(scope="module", autouse=True)
def workers():
    """One process for all of them, unless a test is about the process."""
    with kept_workers():
        yield


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "json.py"  # named like a module of the library
    path.write_text(CODE)
    return path


def sample(text, problem_id="p0", **fields):
    return Sample(Problem(problem_id, "2 + 2?", "4", fields=fields), "Q: 2 + 2?", text, [1] * len(text))


def score(file, call, *samples, state=None, **options):
    with build_reward([f"{file}:{call}"], **options) as reward:
        if state:
            reward.begin(state)
        found = reward.score(list(samples))
        return found, dict(reward.metrics()), reward


def test_a_function_is_given_texts_and_the_columns(file):
    found, _, reward = score(file, "short", sample("abc"), sample(""))
    assert [one.reward for one in found] == [0.25, 1.0]
    assert not reward.is_binary
    found, metrics, _ = score(file, "by_level", sample("ab", level=3), sample("abcd", level=None), state=TrainerState(5, 10))
    assert [(one.reward, one.status) for one in found] == [(3.5, "scored"), (0.0, NOT_APPLICABLE)]
    assert json.loads(found[0].note) == {"level": "3"}
    assert metrics == {"mean_length": 3.0}


def test_async_functions_messages_and_factories(file):
    assert [one.reward for one in score(file, "slowly", sample("ab"), sample("abcd"))[0]] == [2.0, 4.0]
    assert [one.reward for one in score(file, "roles", sample("abc"), form="messages")[0]] == [1.0]
    found, _, reward = score(file, "power(2, exponent=2)", sample("abcd"), sample("abc"))
    assert [one.reward for one in found] == [1.0, 0.0]
    assert reward.is_binary  # it says so


def test_columns_arrive_as_the_data_file_holds_them(file):
    columns = {"when": datetime.date(2026, 2, 3), "price": decimal.Decimal("1.20"), "blob": b"\x00\xff"}
    assert score(file, "kinds", sample("a", **columns))[0][0].reward == 1.0
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 7)
    values = [columns, {"a": [1, None, "x"]}, moment, datetime.time(1, 2), datetime.timedelta(days=2, microseconds=5)]
    assert loads(dumps(values)) == values


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("raises", r"json.py:raises: ZeroDivisionError: .* \(json.py, line \d+\) \(on problem p1\)"),
        ("leaves", r"json.py:leaves: SystemExit: no key \(json.py, line \d+\)"),
        ("few", "it gave 1 rewards for 3 responses"),
        ("nan", "a reward is nan; give a finite number, or None"),
        ("words", r"a reward is 'good' \(str\), not a number"),
        ("astronomic", "a reward is an integer too large for a float"),
        ("forever", r"no answer within 0.5 s \(reward.seconds\); it was stopped \(on problem p1\)"),
        ("dies", "its process ended with exit code 7: last words"),
    ],
)
def test_a_function_that_fails_is_one_line_that_names_it(file, call, words):
    samples = [sample("a"), sample("abc", "p1"), sample("abcd", "p2")]
    started = time.monotonic()
    with pytest.raises(GmcError, match=words) as caught:
        score(file, call, *samples, seconds=0.5 if call == "forever" else 60)
    assert "\n" not in str(caught.value)
    assert "--resume" in str(caught.value)
    assert time.monotonic() - started < 20


def test_a_factory_that_leaves_python_is_named(file):
    with pytest.raises(GmcError, match=r"json.py:leaving cannot be called so: SystemExit: 0 \(json.py, line \d+\)"):
        score(file, "leaving()", sample("a"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("number", "is int, not a function"),
        ("power()", "cannot be called so: TypeError"),
        ("power(2, no=1)", "cannot be called so: TypeError"),
    ],
)
def test_what_is_no_function_is_refused_at_the_start(file, call, words):
    with pytest.raises(GmcError, match=words), build_reward([f"{file}:{call}"]) as reward:
        reward.start()


def test_a_file_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "bad.py").write_text("import no_such_thing\n\ndef f(completions):\n    return []\n")
    with pytest.raises(GmcError, match=r"bad\.py cannot be imported: ModuleNotFoundError"):
        build_reward([f"{tmp_path}/bad.py:f"]).start()


def test_zero_instead_of_a_stop_is_counted(file, caplog):
    found, _, _ = score(file, "raises", sample("abc"), sample("abcd"), on_error="zero")
    assert [(one.reward, one.status) for one in found] == [(0.0, "error")] * 2
    assert "ZeroDivisionError" in found[0].note
    assert "its 2 responses get 0" in caplog.text


def test_after_a_stop_the_next_call_starts_afresh_and_none_is_left_behind(file, monkeypatch):
    monkeypatch.setattr("gmc.rewards.function.Worker", Worker)
    with build_reward([f"{file}:forever"], seconds=0.5, on_error="zero") as reward:
        assert reward.score([sample("abc")])[0].status == "error"
        assert reward.score([replace(sample("abcd"))])[0].status == "scored"


def test_a_batch_larger_than_a_pipe(file):
    samples = [sample("x" * 5_000, blob="y" * 50_000) for _ in range(10)]
    found, _, _ = score(file, "short", *samples)
    assert [one.reward for one in found] == pytest.approx([1 / 5_001] * 10)
