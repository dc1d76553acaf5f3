"""`python -m tests.mutation [--each N] [--only PATTERN] --results FILE`: run the sample, and go on after a stop.

A warm process has imported what is slow; each mutant runs in a child of it, whose import of the one module gives the mutated
source. Run it in a clone, so that nobody edits the code meanwhile.
"""

import argparse
import fnmatch
import importlib.abc
import importlib.util
import io
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
import transformers  # noqa: F401

from tests.mutation.sample import Mutant, mutants_of
from tests.mutation.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
SHORTEST_LIMIT = 20
"""Seconds of processor time that a mutant may take at least; the clock on the wall may run ten times as long."""


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from other source."""

    def __init__(self, name: str, path: str, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, fullname, path=None, target=None):
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self) if fullname == self._name else None

    def get_filename(self, fullname):
        return self._path

    def get_data(self, path):
        return self._source.encode("utf-8")


class Runner:
    """Runs versions of one file against its tests: the test file that has caught most so far comes first."""

    def __init__(self, file: str, tests: Sequence[str]) -> None:
        self._file, self._tests = file, list(tests)
        self._caught: Counter[str] = Counter()

    def baseline(self, source: str) -> float:
        """Processor seconds of the tests on the file as it is; what they import from elsewhere is imported here, once."""
        reading, writing = os.pipe()
        outcome, seconds = self.run(source, 900, writing)
        os.close(writing)
        if outcome != "survived":
            raise RuntimeError(f"{self._file}: {outcome} without a mutation, by {' '.join(self._caught) or self._tests}")
        with os.fdopen(reading) as names:
            for name in names.read().split():
                with suppress(Exception):
                    importlib.import_module(name)
        self._tests = [test for test in self._tests if self._reaches(test)]
        return seconds

    def _reaches(self, test: str) -> bool:
        """Whether a test file fails when the module cannot be imported; one that passes can catch nothing."""
        return Runner(self._file, [test]).run("raise ImportError", 900)[0] != "survived"

    def run(self, source: str, limit: int, modules_to: int | None = None) -> tuple[str, float]:
        """("killed" | "survived" | "timeout", processor seconds). limit: seconds of processor time."""
        tests = sorted(self._tests, key=lambda name: -self._caught[name])
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            os._exit(_child(self._file, source, tests, modules_to))
        ends = time.monotonic() + 10 * limit
        while time.monotonic() < ends:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.02)
        else:
            os.killpg(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
        code, seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        if code == -signal.SIGTERM:
            sys.exit("stopped from outside: that catches no mutant")
        if 0 < code <= len(tests):
            self._caught[tests[code - 1]] += 1
        stopped = code in (-signal.SIGKILL, -signal.SIGXCPU)
        return "timeout" if stopped else "killed" if code else "survived", seconds


def _child(file: str, source: str, tests: Sequence[str], modules_to: int | None) -> int:
    """0, or the number of the test file that failed, from 1."""
    sys.path.insert(0, str(ROOT))
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    sys.meta_path.insert(0, _Mutated(module, str(ROOT / file), source))
    hypothesis.settings.register_profile("mutation", max_examples=10, derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("mutation")
    torch.set_num_threads(1)
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no", "-m", "not slow"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for number, name in enumerate(tests, 1):
            try:
                code = pytest.main([*arguments, str(ROOT / "tests" / name)])
            except BaseException:
                code = 1
            if code:
                return number
    if modules_to is not None:
        installed = [name for name, loaded in sys.modules.items() if "site-packages" in str(getattr(loaded, "__file__", ""))]
        os.write(modules_to, "\n".join(installed).encode()[:60_000])
    return 0


def main() -> None:
    """Run what is not in the results yet."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--each", type=int, default=40, help="mutants a file")
    parser.add_argument("--only", default="*", help="files that match this pattern")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="only print the counts a file so far")
    options = parser.parse_args()
    records = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    if options.table:
        return _print_table(records)
    seen = {record["key"] for record in records}
    os.chdir(ROOT)
    done: set[Path] = set()
    for pattern, names in SUBJECTS.items():
        tests = [name for name in names if (ROOT / "tests" / name).exists()]
        for path in sorted(set(ROOT.glob(pattern)) - done):
            done.add(path)
            file = str(path.relative_to(ROOT))
            if fnmatch.fnmatch(file, options.only):
                try:
                    _run_file(file, path.read_text("utf-8"), tests, options.each, seen, options.results)
                except RuntimeError as error:
                    print(error, flush=True)


def _print_table(records: Sequence[Mapping[str, Any]]) -> None:
    counts = Counter((record["file"], record["outcome"]) for record in records)
    for file in [*sorted({record["file"] for record in records}), "all"]:
        killed, survived, timeout = (
            sum(number for (name, outcome), number in counts.items() if outcome == kind and file in (name, "all"))
            for kind in ("killed", "survived", "timeout")
        )
        total = killed + survived + timeout
        print(f"| {file} | {total} | {killed + timeout} | {100 * (killed + timeout) / max(1, total):.0f} % |")


def _run_file(file: str, source: str, tests: Sequence[str], each: int, seen: set[str], results: Path) -> None:
    chosen = [mutant for mutant in mutants_of(file, source, each) if mutant.key not in seen]
    if not chosen:
        return
    runner = Runner(file, tests)
    baseline = runner.baseline(source)
    print(f"{file}: {len(chosen)} mutants, tests take {baseline:.1f} s", flush=True)
    for mutant in chosen:
        outcome, seconds = runner.run(mutant.source, max(SHORTEST_LIMIT, int(4 * baseline)))
        _record(results, mutant, source, outcome, round(seconds, 1))


def _record(results: Path, mutant: Mutant, source: str, outcome: str, seconds: float) -> None:
    pairs = zip(source.splitlines(), mutant.source.splitlines(), strict=False)
    line, (old, new) = next((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    change = {"line": line, "old": old.strip(), "new": new.strip()}
    record = {"key": mutant.key, "file": mutant.file, **change, "outcome": outcome, "cpu_seconds": seconds}
    with results.open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
