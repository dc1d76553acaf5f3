"""Which tests run which line: a mutant is shown only to the tests that execute what it changed."""

import inspect
import io
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from hypothesis import settings

ROOT = Path(__file__).parents[2]
AT_IMPORT = ""
"""Stands for a test where a line ran outside any, while a module was imported."""


def run_tests(arguments: Sequence[str], *plugins: object) -> int:
    """pytest's exit code. Left out: tests that start processes, since another process imports the file as it is."""
    settings.register_profile("mutation", max_examples=10, derandomize=True, database=None, deadline=None)
    torch.set_num_threads(1)
    options = ["-xq", "--no-header", "--tb=no", "--hypothesis-profile=mutation", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-m", "not process and not slow"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return int(pytest.main([*options, *arguments], plugins=list(plugins)))
        except BaseException:
            return 1


class _Tracer:
    """A pytest plugin that notes for each line of some files which test ran it, and what each test took."""

    def __init__(self, files: Collection[str]) -> None:
        self._wanted = {str(ROOT / file): file for file in files}
        self._test = AT_IMPORT
        self.reached: dict[str, dict[int, dict[str, None]]] = {file: defaultdict(dict) for file in files}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.training: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code: CodeType = frame.f_code
        if (file := self._wanted.get(code.co_filename)) is None:
            return None
        reached = self.reached[file]
        in_function = code.co_flags & inspect.CO_OPTIMIZED  # and not what an import runs, of whichever test came to it first

        def note(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            reached[frame.f_lineno][self._test if in_function else AT_IMPORT] = None
            return note

        reached[code.co_firstlineno][self._test if in_function else AT_IMPORT] = None

        return note

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        self._test = item.nodeid
        if item.get_closest_marker("train"):
            self.training.append(item.nodeid)
        try:
            return (yield)
        finally:
            self._test = AT_IMPORT

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


@dataclass(frozen=True)
class Reach:
    """For one file: tests by the lines they run, and all tests in the order to try them (unit first, then the quick ones)."""

    tests_of_line: Mapping[int, Collection[str]]
    order: Sequence[str]
    modules: Sequence[str]

    def of(self, lines: Collection[int]) -> tuple[list[str], list[str]]:
        """The tests that run one of these lines, then those that run any other: what a first test has cached counts as its.

        What runs at import, such as the bounds of a setting, may be met by a test that runs no line of the file: then all.
        """
        first = {test for line in lines for test in self.tests_of_line.get(line, ())}
        reached = {test for tests in self.tests_of_line.values() for test in tests}
        then = (set(self.order) if AT_IMPORT in first else reached) - first
        return [test for test in self.order if test in first], [test for test in self.order if test in then]


def reach_of(files: Sequence[str], names: Sequence[str], folder: Path) -> dict[str, Reach]:
    """Run test files once, in a child, and say for each file what reaches it. Raises RuntimeError where one fails as it is."""
    written = folder / "reach.json"
    child = os.fork()
    if child == 0:
        tracer = _Tracer(files)
        threading.settrace(tracer)
        sys.settrace(tracer)
        run_tests([str(Path("tests") / name) for name in names], tracer)
        sys.settrace(None)
        modules = [name for name in sys.modules if name.split(".")[0] != "tests" and not name.startswith(("test_", "conftest"))]
        written.write_text(json.dumps([tracer.reached, tracer.seconds, tracer.training, tracer.failed, modules]))
        os._exit(0)
    os.waitpid(child, 0)
    reached, seconds, training, failed, modules = json.loads(written.read_text())
    if failed:
        raise RuntimeError(f"without a mutation: {failed}")
    order = sorted(seconds, key=lambda test: (test in training, seconds[test]))
    return {file: Reach({int(line): tests for line, tests in lines.items()}, order, modules) for file, lines in reached.items()}
