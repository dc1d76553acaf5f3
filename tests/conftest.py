"""One thread a process: tests run side by side, and sums then do not depend on how many cores the machine has."""

import gc
import logging
import os
import subprocess
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import NoReturn

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

collect_ignore = ["data", "mutation", "full", "chaos"]

# A loaded machine may take any time for an example; what a test takes is for benchmarks to say.
settings.register_profile("gmc", deadline=None)
settings.register_profile("inner-loop", parent=settings.get_profile("gmc"), max_examples=25)
settings.load_profile("gmc" if "CI" in os.environ else "inner-loop")

KINDS = {"unit", "train", "process"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test says what it costs, in one of three kinds, so that `-m unit` is an inner loop one can trust."""
    for item in items:
        kinds = KINDS & {mark.name for mark in item.iter_markers()}
        if len(kinds) != 1:
            raise pytest.UsageError(
                f"{item.nodeid}: marked {sorted(kinds) or 'with none'} of unit, train and process; give one"
            )


def pytest_collection_finish() -> None:
    """What was imported so far stays: the garbage collector, which would walk it again and again, may leave it alone."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unit_tests_start_no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test marked `unit` that starts a process fails: it belongs under `process`."""
    if request.node.get_closest_marker("unit") is None:
        return

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("this test is marked unit and starts a process; mark it process")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(BaseProcess, "start", refuse)


@pytest.fixture(autouse=True)
def library_logger() -> Iterator[logging.Logger]:
    """The library's logger as a fresh process has it: a command that ran in an earlier test has sent it to the terminal."""
    logger = logging.getLogger("gmc")
    kept = (logger.level, logger.propagate, list(logger.handlers))
    logger.setLevel(logging.NOTSET)
    logger.propagate, logger.handlers = True, []
    yield logger
    logger.setLevel(kept[0])
    logger.propagate, logger.handlers = kept[1], kept[2]
