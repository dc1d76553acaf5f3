"""One thread a process: tests run side by side, and sums then do not depend on how many cores the machine has."""

import gc
import logging
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import typer.testing
from examples import INNER_LOOP, WHOLE
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

gc.disable()  # until all is imported, of which little goes away again

collect_ignore = ["data", "mutation", "full", "chaos"]

# A loaded machine may take any time for an example; what a test takes is for benchmarks to say.
settings.register_profile("gmc", deadline=None)
settings.register_profile("inner-loop", parent=settings.get_profile("gmc"), max_examples=INNER_LOOP)
settings.load_profile("gmc" if WHOLE else "inner-loop")

KINDS = {"unit", "train", "process"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test says what it costs, in one of three kinds, so that `-m unit` is an inner loop one can trust."""
    for item in items:
        kinds = KINDS & {mark.name for mark in item.iter_markers()}
        if len(kinds) != 1:
            raise pytest.UsageError(
                f"{item.nodeid}: marked {sorted(kinds) or 'with none'} of unit, train and process; give one"
            )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker gets neighbors, so that what a file sets up is set up once; who is done takes from the others."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """What was imported so far stays: the garbage collector, which would walk it again and again, may leave it alone."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    """Watch every start of a process: `_refused_in_unit_tests` looks at the test that runs."""
    # What the tests can see of a flush is when it is asked for and of which file; the disk's work for it took 4 ms each time.
    os.fsync = _require_open  # type: ignore[assignment]
    subprocess.Popen.__init__ = _refused_in_unit_tests(subprocess.Popen.__init__)  # type: ignore[method-assign]
    BaseProcess.start = _refused_in_unit_tests(BaseProcess.start)  # type: ignore[method-assign]
    # Typer makes all commands anew for every call of one; a program does that once, and so does a process of tests.
    typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]


def _require_open(descriptor: Any) -> None:
    """Stands for `os.fsync`. Raises what that raises for what is not open."""
    os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())


_running_unit_test = False


def _refused_in_unit_tests(start: Callable[..., None]) -> Callable[..., None]:
    """A test marked `unit` that starts a process fails: it belongs under `process`."""

    @wraps(start)
    def checked(*arguments: Any, **keywords: Any) -> None:
        if _running_unit_test:
            raise AssertionError("this test is marked unit and starts a process; mark it process")
        start(*arguments, **keywords)

    return checked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A hook and no fixture, which would cost a millisecond a test."""
    global _running_unit_test
    _running_unit_test = item.get_closest_marker("unit") is not None
    try:
        with _library_logger():
            return (yield)
    finally:
        _running_unit_test = False


@contextmanager
def _library_logger() -> Iterator[None]:
    """The library's logger as a fresh process has it: a command that ran in an earlier test has sent it to the terminal."""
    logger = logging.getLogger("gmc")
    kept = (logger.level, logger.propagate, list(logger.handlers))
    _set_level(logger, logging.NOTSET)
    logger.propagate, logger.handlers = True, []
    yield
    _set_level(logger, kept[0])
    logger.propagate, logger.handlers = kept[1], kept[2]


def _set_level(logger: logging.Logger, level: int) -> None:
    """Setting a level empties what each of the thousands of loggers has cached, so only where it is another."""
    if logger.level != level:
        logger.setLevel(level)
