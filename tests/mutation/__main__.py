"""`python -m tests.mutation [--each N] [--only PATTERN] --results FILE`: run the sample, and go on after a stop.

A warm process has imported what is slow and does not import the file; each mutant runs in a child of it, whose import of the
one module gives the mutated source, against the tests that run the lines that it changes. Run it in a clone, so that nobody
edits the code meanwhile.
"""

import argparse
import fnmatch
import importlib.abc
import importlib.util
import itertools
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch  # noqa: F401
import transformers  # noqa: F401

from tests.mutation.reach import ROOT, Reach, reach_of, run_tests
from tests.mutation.sample import Mutant, mutants_of
from tests.mutation.subjects import SUBJECTS

LIMIT = 60
"""Seconds of processor time that a mutant may take; the clock on the wall may run thirty times as long, for a busy machine."""


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
    """Runs versions of one file against the tests that reach what they change."""

    def __init__(self, file: str, reach: Reach) -> None:
        self._file, self._reach = file, reach

    def prepare(self) -> None:
        """Import here, once, whatever the tests import and does not itself import the file."""
        missing = _Mutated(_module(self._file), str(ROOT / self._file), "raise ImportError")
        sys.meta_path.insert(0, missing)
        for name in self._reach.modules:
            with suppress(Exception):
                importlib.import_module(name)
        sys.meta_path.remove(missing)

    def run(self, source: str, lines: Collection[int]) -> tuple[str, float]:
        """("killed" | "survived" | "timeout", processor seconds). lines: those that differ from the file."""
        tests = self._reach.of(lines)
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            os._exit(_child(self._file, source, tests))
        ends = time.monotonic() + 30 * LIMIT
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
        stopped = code in (-signal.SIGKILL, -signal.SIGXCPU)
        return "timeout" if stopped else "killed" if code else "survived", seconds


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _child(file: str, source: str, tests: Sequence[Sequence[str]]) -> int:
    """0 where all of the tests passed."""
    sys.meta_path.insert(0, _Mutated(_module(file), str(ROOT / file), source))
    return int(any(run_tests(part) for part in tests if part))


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
    sys.path.insert(0, str(ROOT))
    done: set[str] = set()
    for tests, patterns in itertools.groupby(SUBJECTS, lambda pattern: SUBJECTS[pattern]):
        found = [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        files = [file for file in found if file not in done and fnmatch.fnmatch(file, options.only)]
        done |= set(found)
        todo = {file: left for file in files if (left := _left(file, options.each, seen))}
        if todo:
            with tempfile.TemporaryDirectory() as folder:
                reaches = reach_of(list(todo), tests, Path(folder))
            for file, mutants in todo.items():
                _apart(partial(_run_file, file, mutants, reaches[file], options.results))


def _left(file: str, each: int, seen: Collection[str]) -> list[Mutant]:
    return [mutant for mutant in mutants_of(file, (ROOT / file).read_text("utf-8"), each) if mutant.key not in seen]


def _apart(work: Callable[[], None]) -> None:
    """Do the work in a process of its own: what one file's baseline imports must not be there for the next file."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit("stopped")


def _print_table(records: Sequence[Mapping[str, Any]]) -> None:
    counts = Counter((record["file"], record["outcome"]) for record in records)
    for file in [*sorted({record["file"] for record in records}), "all"]:
        killed, survived, timeout = (
            sum(number for (name, outcome), number in counts.items() if outcome == kind and file in (name, "all"))
            for kind in ("killed", "survived", "timeout")
        )
        total = killed + survived + timeout
        print(f"| {file} | {total} | {killed + timeout} | {100 * (killed + timeout) / max(1, total):.0f} % |")


def _run_file(file: str, mutants: Sequence[Mutant], reach: Reach, results: Path) -> None:
    print(f"{file}: {len(mutants)} mutants", flush=True)
    source = (ROOT / file).read_text("utf-8")
    runner = Runner(file, reach)
    runner.prepare()
    if runner.run(source, range(1, len(source.splitlines()) + 1))[0] != "survived":
        return print(f"{file}: left out, a test fails without a mutation", flush=True)
    for mutant in mutants:
        pairs = itertools.zip_longest(source.splitlines(), mutant.source.splitlines(), fillvalue="")
        changed = {line: pair for line, pair in enumerate(pairs, 1) if pair[0] != pair[1]}
        outcome, seconds = runner.run(mutant.source, changed)
        line, (old, new) = next(iter(changed.items()))
        change = {"line": line, "old": old.strip(), "new": new.strip()}
        record = {"key": mutant.key, "file": file, **change, "outcome": outcome, "cpu_seconds": round(seconds, 1)}
        with results.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
