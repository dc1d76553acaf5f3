"""Live mode under harm: a follower or a trainer meets it while the other works on; then the harmed one is started again.

Generation and training only pretend (tests/live_processes.py); claims, heartbeats, pacing, waiting, logs and policies are the
real ones. Real time decides who is first, so what is compared is the promise: every update made, every batch used once,
launched = trained + waiting, no shard of a batch twice. The processes know nothing of torch and mostly wait: many may run at
once.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gmc.live.claims import read_ledger
from gmc.store.logs import read_used
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory
from tests import live_processes
from tests.chaos.drive import Tried, begun, by_thread, ended_badly, forked
from tests.chaos.shim import Place, Shim

UPDATES, LEASE = 3, 0.4
PATIENCE = 60
"""Seconds within which the other one must end."""


def _follow(path: Path) -> None:
    live_processes.follower(RunDirectory.open(path), 2, LEASE, 0.002)


def _train(path: Path) -> None:
    live_processes.trainer(RunDirectory.open(path), UPDATES, 0.001, 1)


class LiveBench:
    """role: who is harmed, "follower" or "trainer". operations: as of a `Bench`, of one run: real time decides how often one
    looks."""

    distinct = 0

    def __init__(self, role: str, scratch: Path) -> None:
        self._scratch = scratch
        self.losses: dict[str, int] = {}
        self._harmed, self._other = (_follow, _train) if role == "follower" else (_train, _follow)
        self.operations = self._count()

    def apart(self, number: int) -> "LiveBench":
        """For a process of its own."""
        other = LiveBench.__new__(LiveBench)
        other.__dict__ |= {**self.__dict__, "_scratch": self._scratch / f"worker-{number}"}
        other._scratch.mkdir()
        return other

    def _count(self) -> dict[str, list[tuple[str, str]]]:
        path = self._fresh()

        def watched() -> list[Any]:
            shim = Shim(path)
            shim.install()
            self._harmed(path)
            return list(shim.operations)

        other = self._beside(lambda: self._other(path))
        code, told = forked(watched, self._scratch / "report.json")
        os.waitpid(other, 0)
        assert code == 0, told
        return by_thread(told)

    def _fresh(self) -> Path:
        path = self._scratch / "live"
        shutil.rmtree(path, ignore_errors=True)
        RunDirectory.create(path, model="embedded", seed=0)
        return path

    def _beside(self, work: Callable[[], Any]) -> int:
        return begun(work, self._scratch / "beside.json")

    def harm(self, kind: str, place: Place) -> Tried:
        """One harm to one, while the other works on."""
        path, mark = self._fresh(), self._scratch / "harmed"
        mark.unlink(missing_ok=True)

        def start() -> None:
            Shim(path, place, kind, mark).install()
            self._harmed(path)

        other = self._beside(lambda: self._other(path))
        code, told = forked(start, self._scratch / "report.json")
        found = ended_badly(code, told, path)
        if code:
            code, told = forked(lambda: self._harmed(path), self._scratch / "report.json")
            found += [f"cannot go on: {told}"] if code else []
        found += self._ended(other)
        return Tried(mark.exists(), found or _broken_promises(path))

    def _ended(self, other: int) -> list[str]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done, status = os.waitpid(other, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return (
                    [f"the other one ended with {code}: {(self._scratch / 'beside.json').read_text('utf-8')}"] if code else []
                )
            time.sleep(0.01)
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
        return ["the other one never ended"]


def _broken_promises(path: Path) -> list[str]:
    run = RunDirectory.open(path)
    used = [group.batch for groups in read_used(run.used) for group in groups]
    shards = [int(found[1]) for name in os.listdir(run.rollouts) if (found := ROLLOUT_NAME.fullmatch(name))]
    found = []
    if len(used) != UPDATES or len(set(used)) != UPDATES:
        found.append(f"batches used: {used}")
    if len(shards) != len(set(shards)) or not set(used) <= set(shards):
        found.append(f"batches on disk {sorted(shards)}, used {used}")
    if lost := set(range(max(shards) + 1)) - set(shards) - read_ledger(run).claimed.keys():
        found.append(f"batches lost: {sorted(lost)}")
    return found
