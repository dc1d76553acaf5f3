"""A call of an environment ends in time and is named, and gmc closes what it opened however a command ends."""

import signal
import sys
import threading
import time
import weakref

import pytest
from training_runs import small_settings, train_run

from gmc.environments import watching
from gmc.environments.base import Environment
from gmc.environments.limits import EnvironmentFailedError, called, close_environment
from gmc.environments.registry import list_environments
from gmc.generation.filling import fill_run
from gmc.library import evaluate
from gmc.registry import Plugin
from gmc.training.update import Updater


class Slow(Environment):
    """Takes its time."""

    name = "slow"
    summary = "takes its time"
    hangs_in = "reply"
    closed = 0

    def start(self, problem):
        return self._wait("start") or super().start(problem)

    def reply(self, episode, text):
        self._wait("reply")

    def worth(self, episode, score):
        return self._wait("worth") or score

    def close(self):
        type(self).closed += 1
        self._wait("close")

    def _wait(self, where):
        while where == self.hangs_in:
            try:
                time.sleep(60)
            except Exception:
                continue


@pytest.fixture
def slow(monkeypatch):
    """Slow as an installed environment."""
    found = [*list_environments(), Plugin("slow", "test 1", "test:Slow", Slow, None)]
    monkeypatch.setattr(Slow, "closed", 0)
    monkeypatch.setattr("gmc.environments.build.load_environment", lambda name: next(p.cls for p in found if p.name == name))
    return Slow


@pytest.mark.unit
def test_a_call_that_hangs_ends_in_time_and_leaves_the_signal_as_it_was():
    environment = Slow()
    environment.seconds = 0.1
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        started = time.monotonic()
        with pytest.raises(EnvironmentFailedError) as caught, called(environment, "p7", "reply to turn 2"):
            environment.reply(None, "")
        assert time.monotonic() - started < 5
        assert str(caught.value) == (
            "environment slow, problem p7: reply to turn 2 took longer than 0.1 s and was stopped; repair it, or raise "
            "rollout.environment_seconds, and go on with --resume"
        )
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.unit
def test_a_call_that_leaves_python_is_a_failure_with_a_name_and_no_end_of_the_command():
    words = r"^environment slow, problem p7: start raised SystemExit: 0\. "
    with pytest.raises(EnvironmentFailedError, match=words), called(Slow(), "p7", "start"):
        sys.exit(0)


@pytest.mark.unit
def test_a_call_that_swallows_its_end_once_is_ended_again(monkeypatch):
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.3)
    environment, ends = Slow(), []
    environment.seconds = 0.05

    def swallows():
        try:
            time.sleep(30)
        except BaseException as error:
            ends.append(error)
        time.sleep(30)

    def reply():
        with called(environment, "p", "reply"):
            swallows()

    with pytest.raises(EnvironmentFailedError, match="took longer"):
        reply()
    assert len(ends) == 1


class Finalized:
    """Still at work when the time of the call is over."""

    def __init__(self, ended):
        self.ended = ended

    def __del__(self):
        time.sleep(0.3)
        self.ended.append(True)


class Weak:
    """May be referred to weakly, which sets and lists may not."""


@pytest.mark.unit
@pytest.mark.parametrize("kind", ["finalizer", "weak reference"])
def test_the_end_of_a_call_is_not_lost_in_a_finalizer(monkeypatch, kind):
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.05)
    environment, ended = Slow(), []
    environment.seconds = 0.1

    def drop():
        if kind == "finalizer":
            Finalized(ended)
        else:
            kept, key = weakref.WeakKeyDictionary(), Weak()
            kept[key] = Finalized(ended)
            del key
        time.sleep(30)

    with pytest.raises(EnvironmentFailedError, match="took longer"), called(environment, "p", "reply"):
        drop()
    assert ended == [True]


@pytest.mark.unit
def test_a_call_from_another_thread_works():
    done = []

    def call():
        with called(Slow(), "p", "reply"):
            done.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.unit
def test_closing_that_hangs_or_raises_hides_nothing(monkeypatch, caplog):
    environment = Slow()
    environment.seconds = 0.1
    monkeypatch.setattr(Slow, "hangs_in", "close")
    close_environment(environment)
    monkeypatch.setattr(Slow, "close", lambda self: 1 / 0)
    close_environment(environment)
    assert [record.getMessage() for record in caplog.records] == [
        "environment slow: close took longer than 0.1 s and was stopped",
        "environment slow: close raised ZeroDivisionError: division by zero",
    ]


SLOW = ["rollout.environment=slow", "rollout.environment_seconds=0.2", "rollout.max_tokens=40", "rollout.prompts=2"]


@pytest.mark.train
@pytest.mark.parametrize("hangs_in", ["start", "reply", "worth"])
def test_training_ends_in_one_line_and_closes(tmp_path, slow, monkeypatch, hangs_in):
    monkeypatch.setattr(slow, "hangs_in", hangs_in)
    with pytest.raises(EnvironmentFailedError, match=rf"environment slow, problem .*: {hangs_in}.* took longer than 0\.2 s"):
        train_run(tmp_path / "run", small_settings(*SLOW, "delay=0", "train.updates=1"))
    assert slow.closed == 1


@pytest.mark.train
def test_it_is_closed_at_the_end_after_an_error_and_after_ctrl_c(tmp_path, slow, monkeypatch):
    monkeypatch.setattr(slow, "hangs_in", "nothing")
    settings = small_settings(*SLOW, "rollout.environment_seconds=60", "delay=0", "train.updates=1", "rollout.batches=1")
    train_run(tmp_path / "run", settings)
    assert slow.closed == 1
    fill_run(tmp_path / "rollouts", settings)
    assert slow.closed == 2
    evaluate(tmp_path / "run", n=1, limit=2, greedy=False, max_tokens=5)
    assert slow.closed == 3
    for number, error in enumerate((KeyboardInterrupt, OSError), start=4):
        with monkeypatch.context() as patch:
            patch.setattr(Updater, "run", lambda self, groups, update, error=error: (_ for _ in ()).throw(error()))
            with pytest.raises(error):
                train_run(tmp_path / f"run-{number}", settings)
        assert slow.closed == number
    with pytest.raises(KeyboardInterrupt):
        fill_run(tmp_path / "ctrl-c", settings, advance=lambda count: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert slow.closed == 6
