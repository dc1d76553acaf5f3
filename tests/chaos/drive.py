"""Forks a scene with one harm, judges how it ended, forks what goes on, and compares the outcomes.

Of a death or a power loss nothing but the disk remains, so the scene need not run for each: one run that nothing harms shows
what every death and power loss would leave. And what goes on knows only the disk: equal folders are gone on from once.
"""

import hashlib
import json
import os
import secrets
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gmc.errors import GmcError
from tests.chaos.disks import Deaths, fingerprint, lay_out, read_state
from tests.chaos.power import Disk
from tests.chaos.shim import DEATHS, DIED, Place, Shim

SECONDS = 60


def forked(work: Callable[[], Any], report: Path) -> tuple[int, Any]:
    """Run `work` in a fork; its exit status and what it returned or raised, as JSON through `report`."""
    _, status = os.waitpid(begun(work, report), 0)
    told = json.loads(report.read_text("utf-8") or "null") if report.exists() else None
    return os.waitstatus_to_exitcode(status), told


def begun(work: Callable[[], Any], report: Path) -> int:
    """Have a fork do `work`, as `forked` does; its process number."""
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _end(work, report)
    return child


def _end(work: Callable[[], Any], report: Path) -> None:
    signal.alarm(SECONDS)
    write, silence = os.open(report, os.O_WRONLY | os.O_CREAT), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        code, told = 0, work()
    except GmcError as error:
        code, told = 1, f"{type(error).__name__}: {error}"
    except OSError as error:
        code, told = 2, f"{error.filename}: {error.strerror}"
    except BaseException:
        code, told = 3, traceback.format_exc()
    os.write(write, json.dumps(told).encode())
    os._exit(code)


class Scene(Protocol):
    """start: the command in an empty folder; finish: what a person does after it stopped; outcome: what must be equal."""

    def start(self, path: Path) -> None: ...
    def finish(self, path: Path) -> None: ...
    def outcome(self, path: Path) -> Any: ...


class Tried(NamedTuple):
    """One harm. met: whether its operation came; broken: what was violated."""

    met: bool
    broken: list[str]


class Bench:
    """One scene in a scratch folder: its undisturbed outcome, its operations, and any harm to it.

    operations: of each thread in their order, as name and path. losses: how many states a power loss may leave, by kind of
    disk. left: the fingerprint of the disk that was last gone on from. distinct: how many different ones.
    """

    left = ""

    def __init__(self, scene: Scene, scratch: Path) -> None:
        self._scene = scene
        self._states = scratch / "states"
        self._scratch = scratch
        self._judged: dict[str, list[str]] = {}
        code, told = forked(self._undisturbed, self._report)
        if code:
            sys.exit(f"the undisturbed scene fails: {told}")
        self.outcome, operations, deaths, self.losses = told
        self.operations = by_thread(operations)
        self._death = {(kind, Place(*place)): number for kind, place, number in deaths}

    @property
    def _report(self) -> Path:
        return self._scratch / "report.json"

    @property
    def distinct(self) -> int:
        """So far."""
        return len(self._judged)

    def apart(self, number: int) -> "Bench":
        """For a process of its own."""
        other = Bench.__new__(Bench)
        other.__dict__ |= {**self.__dict__, "_scratch": self._scratch / f"worker-{number}", "_judged": {}}
        other._scratch.mkdir()
        return other

    def _undisturbed(self) -> Any:
        path = self._scratch / "whole"
        same_names()
        shim = Shim(path)
        deaths, disk = Deaths(shim), Disk(shim)
        shim.install()
        self._scene.start(path)
        shim.release()
        for number, state in enumerate(deaths.states):
            if state is not None:
                lay_out(state, self._states / f"death-{number}")
        for kind, states in disk.states.items():
            for number, state in enumerate(states):
                lay_out(state, self._states / f"{kind}-{number}")
        left = [(kind, place, number) for (kind, place), number in deaths.of.items()]
        return [self._scene.outcome(path), shim.operations, left, {kind: len(states) for kind, states in disk.states.items()}]

    def harm(self, kind: str, place: Place) -> Tried:
        """An error at an operation, or a death."""
        if kind in DEATHS:
            return Tried(True, self._go_on_from(f"death-{self._death[kind, place]}"))
        return self.harm_really(kind, place)

    def harm_really(self, kind: str, place: Place) -> Tried:
        """As `harm`, in a fork of the scene that meets it, deaths too."""
        path, mark = self._scratch / "run", self._scratch / "harmed"
        shutil.rmtree(path, ignore_errors=True)
        mark.unlink(missing_ok=True)

        def start() -> None:
            same_names()
            Shim(path, place, kind, mark).install()
            self._scene.start(path)

        code, told = forked(start, self._report)
        return Tried(mark.exists(), [*ended_badly(code, told, path), *self._go_on(path)])

    def lose_power(self, kind: str, number: int) -> Tried:
        """Power is lost, and the disk of this kind holds the state of this number."""
        return Tried(True, self._go_on_from(f"{kind}-{number}"))

    def left_by(self, kind: str, place: Place) -> str:
        """The fingerprint of what a death leaves, as the undisturbed run says."""
        path = self._states / f"death-{self._death[kind, place]}"
        return fingerprint(read_state(str(path))) if path.exists() else ""

    def _go_on_from(self, name: str) -> list[str]:
        path = self._scratch / "run"
        shutil.rmtree(path, ignore_errors=True)
        if (self._states / name).exists():
            shutil.copytree(self._states / name, path)
        return self._go_on(path)

    def _go_on(self, path: Path) -> list[str]:
        """The violations in what follows when a person goes on with the folder."""
        self.left = fingerprint(read_state(str(path))) if path.exists() else ""
        if self.left not in self._judged:
            self._judged[self.left] = self._finish(path)
        return self._judged[self.left]

    def _finish(self, path: Path) -> list[str]:
        code, told = forked(lambda: [self._scene.finish(path), self._scene.outcome(path)][1], self._report)
        if code:
            return [f"cannot go on: {told}"]
        return [] if told == self.outcome else [f"goes on to another outcome: {_difference(told, self.outcome)}"]


def by_thread(operations: list[Any]) -> dict[str, list[tuple[str, str]]]:
    """Name and path of each thread's operations in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (thread, _), name, path in operations:
        found.setdefault(thread, []).append((name, path))
    return found


def ended_badly(code: int, told: Any, path: Path) -> list[str]:
    """What is wrong with how a harmed command ended: it must end well, die, or say one line that names a file of the run."""
    if code not in (0, 1, 2, DIED):
        return [f"ended in a traceback: {told}"]
    found = []
    if code in (1, 2) and str(path) not in str(told):
        found.append(f"the error names no file: {told}")
    if code in (1, 2) and "\n" in str(told):
        found.append(f"the error is no line: {told}")
    return found


def same_names() -> None:
    """Have this process draw the same run id and temporary names as another that does the same, in each thread."""
    drawn: Counter[str] = Counter()

    def token_hex(size: int) -> str:
        thread = threading.current_thread().name
        drawn[thread] += 1
        return hashlib.blake2b(f"{thread}/{drawn[thread]}".encode(), digest_size=size).hexdigest()

    secrets.token_hex = token_hex  # type: ignore[assignment]


def _difference(found: Any, wanted: Any) -> str:
    for place, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return f"part {place}: {str(one)[:300]} instead of {str(other)[:300]}"
    return "other parts"
