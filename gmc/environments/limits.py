"""Calling an environment, which is somebody's code: in time, and with its name in what goes wrong."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gmc.environments.base import Environment
from gmc.errors import GmcError
from gmc.registry import in_one_line

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""A call that swallows what ends it is ended again after this."""


class EnvironmentFailedError(GmcError):
    """An environment raised, took too long, or answered with something that is no text."""


class _Late(BaseException):
    """The time of a call is over. No `except Exception` of somebody's code is to catch it."""


@contextmanager
def called(environment: Environment, problem_id: str, what: str) -> Iterator[None]:
    """A call of the environment about one problem. what: the call, in words.

    Raises `EnvironmentFailedError` in one line that names both for what the call raises, and for a call that takes longer than
    `environment.seconds`. Python can be interrupted in its main thread alone: a call from another thread has no limit.
    """
    where = f"environment {environment.name}, problem {problem_id}: {what}"
    try:
        with _time_limit(environment.seconds):
            yield
    except _Late as error:
        raise EnvironmentFailedError(
            f"{where} took longer than {environment.seconds:g} s and was stopped; repair it, or raise "
            "rollout.environment_seconds, and go on with --resume"
        ) from error
    except GmcError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in can fail in any way
        raise EnvironmentFailedError(f"{where} raised {in_one_line(error)}. Repair it and go on with --resume") from error


def close_environment(environment: Environment) -> None:
    """Close it in time, whatever it does: what has been made is on the disk, and no fault of closing is to hide another."""
    try:
        with _time_limit(environment.seconds):
            environment.close()
    except _Late:
        log.warning("environment %s: close took longer than %g s and was stopped", environment.name, environment.seconds)
    except (Exception, SystemExit) as error:  # a plug-in can fail in any way
        log.warning("environment %s: close raised %s", environment.name, in_one_line(error))


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def late(number: int, frame: FrameType | None) -> None:
        if running:
            raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
