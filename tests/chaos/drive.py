"""Forks a scene with one harm, judges how it ended, forks what goes on, and compares the outcomes."""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gmc.errors import GmcError
from tests.chaos.power import Disk, lay_out
from tests.chaos.scenes import Scene
from tests.chaos.shim import DIED, Shim

SECONDS = 60


def forked(work: Callable[[], Any], report: Path) -> tuple[int, Any]:
    """Run `work` in a fork; its exit status and what it returned or raised, as JSON through `report`."""
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _end(work, report)
    _, status = os.waitpid(child, 0)
    told = json.loads(report.read_text("utf-8") or "null") if report.exists() else None
    return os.waitstatus_to_exitcode(status), told


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


class Bench:
    """One scene in a scratch folder: its undisturbed outcome and operations, and any harm to it. mark: there after a harm that
    came to its operation."""

    def __init__(self, scene: Scene, scratch: Path) -> None:
        self._scene = scene
        self._scratch = scratch
        self._report = scratch / "report.json"
        self.mark = scratch / "harmed"
        code, told = forked(self._undisturbed, self._report)
        if code:
            sys.exit(f"the undisturbed scene fails: {told}")
        self.outcome, self.operations = told

    def _undisturbed(self) -> Any:
        path = self._scratch / "whole"
        shim = Shim(path)
        shim.install()
        self._scene.start(path)
        operations = list(shim.operations)
        return [self._scene.outcome(path), operations]

    def harm(self, point: int, kind: str) -> list[str]:
        """The violations of one harm, none when all is well."""
        path = self._scratch / "run"
        shutil.rmtree(path, ignore_errors=True)
        self.mark.unlink(missing_ok=True)

        def start() -> None:
            Shim(path, point, kind, self.mark).install()
            self._scene.start(path)

        code, told = forked(start, self._report)
        found = []
        if code not in (0, 1, 2, DIED):
            found.append(f"ended in a traceback: {told}")
        if code in (1, 2) and str(path) not in str(told):
            found.append(f"the error names no file: {told}")
        if code in (1, 2) and "\n" in str(told):
            found.append(f"the error is no line: {told}")
        return found + self.go_on(path)

    def power_losses(self) -> list[tuple[str, int]]:
        """How many states a power loss may leave, by kind of disk. They lie in the scratch folder for `lose_power`."""

        def record() -> dict[str, int]:
            path = self._scratch / "recorded"
            shim, store = Shim(path), dict[int, Path]()
            disk = Disk(shim)
            shim.install()
            self._scene.start(path)
            for kind, states in disk.states.items():
                for number, state in enumerate(states):
                    lay_out(state, self._scratch / "states" / f"{kind}-{number}", store)
            return {kind: len(states) for kind, states in disk.states.items()}

        code, told = forked(record, self._report)
        if code:
            sys.exit(f"the recorded scene fails: {told}")
        return [(kind, number) for kind, count in told.items() for number in range(count)]

    def lose_power(self, kind: str, number: int) -> list[str]:
        """The violations of going on from one of these states."""
        return self.go_on(self._scratch / "states" / f"{kind}-{number}")

    def go_on(self, path: Path) -> list[str]:
        """The violations in what follows when a person goes on with the folder."""
        code, told = forked(lambda: [self._scene.finish(path), self._scene.outcome(path)][1], self._report)
        if code:
            return [f"cannot go on: {told}"]
        return [] if told == self.outcome else [f"goes on to another outcome: {_difference(told, self.outcome)}"]


def _difference(found: Any, wanted: Any) -> str:
    for place, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return f"part {place}: {str(one)[:300]} instead of {str(other)[:300]}"
    return "other parts"
