"""Calling an environment, which is somebody's code: in time, and with its name in what goes wrong."""

import contextlib
import logging
import os
import reprlib
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gmc.environments import watching
from gmc.environments.base import Environment, Episode
from gmc.errors import GmcError, UsageError
from gmc.registry import in_one_line
from gmc.rewards.base import Score
from gmc.rewards.combined import is_reward
from gmc.rewards.wire import is_writable
from gmc.store.shards.rollout import LARGEST_REWARD

log = logging.getLogger(__name__)

DECLARED = (
    *((name, bool, "True or False") for name in ("replies", "inline", "scores_turns", "keeps_rewards")),
    ("role", str, "a text"),
)
"""What else an environment says of itself, and what that has to be."""


class EnvironmentFailedError(GmcError):
    """An environment raised, took too long, or answered with something that is no text."""


class OddAnswerError(Exception):
    """An environment answered with something that its contract does not know; the text goes on from the call's name."""


class _Late(BaseException):
    """The time of a call is over. No `except Exception` of somebody's code is to catch it."""


@contextmanager
def called(environment: Environment, problem_id: str, what: str) -> Iterator[None]:
    """A call of the environment about one problem. what: the call, in words.

    Raises `EnvironmentFailedError` in one line that names both for what the call raises, and for a call that takes longer than
    `environment.seconds`. Python can be interrupted in its main thread alone: a call from another thread has no limit.
    """
    where = f"environment {environment.name}, problem {problem_id}: {what}"
    process, folder = os.getpid(), os.getcwd()
    try:
        with _time_limit(environment.seconds, where):
            yield
    except _Late as error:
        raise EnvironmentFailedError(
            f"{where} took longer than {environment.seconds:g} s and was stopped; repair it, or raise "
            "rollout.environment_seconds, and go on with --resume"
        ) from error
    except (GmcError, KeyboardInterrupt):
        raise
    except OddAnswerError as error:
        raise EnvironmentFailedError(f"{where} {error}. Repair it and go on with --resume") from error
    except BaseException as error:  # a plug-in can fail in any way
        raise EnvironmentFailedError(f"{where} raised {in_one_line(error)}. Repair it and go on with --resume") from error
    finally:
        if os.getpid() != process:
            os._exit(0)  # a child that the call has forked came back: there is one run
        if os.getcwd() != folder:
            os.chdir(folder)


@contextmanager
def configuring(environment: Environment, what: str) -> Iterator[None]:
    """What is asked of an environment before anything is made. what: its name. Raises `UsageError` in one line for what it
    raises, and for what takes longer than `environment.seconds`."""
    where = f"--environment {environment.name}: {what}"
    try:
        with _time_limit(environment.seconds, where):
            yield
    except _Late as error:
        raise UsageError(
            f"{where} took longer than {environment.seconds:g} s and was stopped; repair the environment"
        ) from error
    except (GmcError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a plug-in can fail in any way
        raise UsageError(f"{where} raised {in_one_line(error)}; repair the environment") from error


def require_declared(environment: Environment) -> None:
    """Refuse an environment that says of itself what cannot be. Raises `UsageError` as `configuring`."""
    declared_stops(environment)
    for name, kind, wanted in DECLARED:
        with configuring(environment, name):
            given = getattr(environment, name)
        if not isinstance(given, kind):
            raise UsageError(f"--environment {environment.name}: {name} is {given!r:.80}, not {wanted}; repair the environment")


def declared_stops(environment: Environment) -> tuple[str, ...]:
    """What ends a turn of the model, as the environment says. Raises `UsageError` as `configuring`."""
    with configuring(environment, "stop"):
        given: object = environment.stop
    if not isinstance(given, tuple | list) or not all(isinstance(text, str) and text and is_writable(text) for text in given):
        raise UsageError(
            f"--environment {environment.name}: stop gave {given!r:.80}, not a tuple of texts that are not empty; "
            "repair the environment"
        )
    return tuple(given)


def require_episode(given: object) -> Episode:
    """What `start` gave, if it is a new episode. Raises `OddAnswerError`."""
    if not isinstance(given, Episode):
        raise OddAnswerError(f"gave {type(given).__name__}, not an Episode")
    if not isinstance(given.question, str):
        raise OddAnswerError(f"gave an episode whose question is {type(given.question).__name__}, not a text")
    if not is_writable(given.question):
        raise OddAnswerError("gave an episode whose question UTF-8 cannot write (half of a surrogate pair)")
    if given.turns or given.scores:
        raise OddAnswerError("gave an episode that has begun; make a new one for every call")
    return given


def require_reply(given: object) -> str | None:
    """What `reply` gave, if it is a text that can be written, or None. Raises `OddAnswerError`."""
    if given is not None and not isinstance(given, str):
        raise OddAnswerError(f"answered with {type(given).__name__}, not a text or None")
    if given is not None and not is_writable(given):
        raise OddAnswerError("answered with text that UTF-8 cannot write (half of a surrogate pair)")
    return given


def require_worth(given: object) -> Score:
    """What `worth` gave, if it can be trained on. Raises `OddAnswerError`."""
    if not is_reward(given):
        found = given.reward if isinstance(given, Score) else given
        limit = f"±{LARGEST_REWARD:g}"
        raise OddAnswerError(f"gave {reprlib.repr(found)}, not a Score whose reward is a finite number within {limit}")
    assert isinstance(given, Score)
    texts = [given.status, *(text for text in (given.prediction, given.note) if text is not None), *given.parts]
    if not all(isinstance(text, str) and is_writable(text) for text in texts):
        raise OddAnswerError("gave a Score whose status, prediction, note or parts' names are no text that UTF-8 can write")
    return given


def close_environment(environment: Environment) -> None:
    """Close it in time, whatever it does: what has been made is on the disk, and no fault of closing is to hide another."""
    try:
        with _time_limit(environment.seconds, f"environment {environment.name}: close"):
            environment.close()
    except _Late:
        log.warning("environment %s: close took longer than %g s and was stopped", environment.name, environment.seconds)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in can fail in any way
        log.warning("environment %s: close raised %s", environment.name, in_one_line(error))


def _amid_cleanup(frame: FrameType | None) -> bool:
    """Whether Python is in a finalizer or in a callback of a weak reference, which swallow what is raised and print it: the
    next signal comes soon."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _time_limit(seconds: float, where: str) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def late(number: int, frame: FrameType | None) -> None:
        if running and not _amid_cleanup(frame):
            raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, watching.AGAIN_SECONDS)
    try:
        # Standard output is for results.
        with watching.watch.over(where, seconds), contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
