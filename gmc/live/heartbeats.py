"""Heartbeats: each process of a live run says in one small file who it is, what it does and which policy it holds."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gmc.errors import GmcError
from gmc.store.files import entries, read_json, write_json
from gmc.store.formats import read_format, stamp
from gmc.store.records import checked

log = logging.getLogger(__name__)

TRAINER = "trainer"
"""The trainer's name among the heartbeats."""

BEATS_A_LEASE = 5
"""Heartbeats within one lease: four may be late before a process counts as dead."""

CURE = "delete it once its process has ended"

STOPPED, FAILED = "stopped", "failed"


@dataclass(frozen=True)
class Heartbeat:
    """What a process last said of itself.

    beat: counts up while the process lives. state: a few words for people; "stopped" and "failed" are final. version: policy
    version held, None before the first. batch: launch batch in work. batches, responses, tokens: made so far.
    busy_seconds: time spent making them. started_at, beat_at: wall clock. error: one line, for "failed".
    """

    name: str
    host: str
    process: int
    lease_seconds: float
    started_at: float
    beat_at: float
    beat: int = 0
    state: str = "starting"
    version: int | None = None
    batch: int | None = None
    batches: int = 0
    responses: int = 0
    tokens: int = 0
    busy_seconds: float = 0.0
    error: str | None = None

    @property
    def final(self) -> bool:
        """Whether the process has ended in good order or by an error."""
        return self.state in (STOPPED, FAILED)


_HEARTBEAT = TypeAdapter(Heartbeat)


def new_name() -> str:
    """A follower's name: host, process and a random part, so that a restarted follower is a new one."""
    return f"{socket.gethostname().replace('/', '_')}-{os.getpid()}-{secrets.token_hex(3)}"


class HeartbeatWriter:
    """This process's own heartbeat. Beats from a thread, because generating a batch may take longer than a lease."""

    def __init__(self, folder: Path, name: str, lease_seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / f"{name}.json"
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        now = clock()
        self.current = Heartbeat(name, socket.gethostname(), os.getpid(), lease_seconds, now, now)
        self._failing = False

    def write(self, state: str, **changes: Any) -> None:
        """Change what the heartbeat says, and beat at once."""
        self._try_to_beat(state=state, **changes)

    @contextmanager
    def beating(self) -> Iterator["HeartbeatWriter"]:
        """Beat until the end of the block; the last beat says how it ended.

        Raises what keeps the first beat from being written. Later ones are tried again, with a warning: a full disk may have
        room again, and the process has work that does not need the file.
        """
        self._beat()
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield self
        except BaseException as error:
            self._end(thread)
            line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            self._try_to_beat(state=FAILED, batch=None, error=line)
            raise
        self._end(thread)
        self._try_to_beat(state=STOPPED, batch=None)

    def _end(self, thread: threading.Thread) -> None:
        self._stop.set()
        thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.current.lease_seconds / BEATS_A_LEASE):
            self._try_to_beat()

    def _try_to_beat(self, **changes: Any) -> None:
        try:
            self._beat(**changes)
        except (GmcError, OSError) as error:
            if not self._failing:
                lease = self.current.lease_seconds
                log.warning("no heartbeat: %s Others take this process for dead after %g s", error, lease)
            self._failing = True
        else:
            self._failing = False

    def _beat(self, **changes: Any) -> None:
        with self._lock:
            self.current = replace(self.current, beat=self.current.beat + 1, beat_at=self._clock(), **changes)
            write_json(self._path, {**stamp(), **asdict(self.current)})


def read_heartbeats(folder: Path) -> dict[str, Heartbeat]:
    """The last heartbeat of everyone who ever was in this run, by name."""
    found = [path for path in entries(folder, "*.json") if not path.name.startswith(".")]
    return {path.stem: read_heartbeat(path) for path in found}


def read_heartbeat(path: Path) -> Heartbeat:
    """One heartbeat file. Raises `DataError` when it is damaged or newer."""
    content = read_json(path, CURE)
    read_format(path, content)
    return checked(_HEARTBEAT, content, path, CURE)


class Watcher:
    """Tells who lives, by whether heartbeats go on, with this process's own clock: the clocks of machines may differ.

    A name seen for the first time gets a whole lease to beat again.
    """

    def __init__(self, folder: Path, lease_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._last: tuple[float, dict[str, Heartbeat]] | None = None

    def recent(self) -> dict[str, Heartbeat]:
        """Who lived at a look that is less than half a beat old: enough to trust the living, not to take another for dead."""
        if self._last is not None and self._clock() - self._last[0] < self._lease_seconds / BEATS_A_LEASE / 2:
            return self._last[1]
        return self.look()

    def look(self) -> dict[str, Heartbeat]:
        """Read all heartbeats; returns those of the living."""
        now = self._clock()
        beats = read_heartbeats(self._folder)
        for name, heartbeat in beats.items():
            if name not in self._seen or self._seen[name][0] != heartbeat.beat:
                self._seen[name] = (heartbeat.beat, now)
        living = {
            name: heartbeat
            for name, heartbeat in beats.items()
            if not heartbeat.final and now - self._seen[name][1] <= self._lease_seconds
        }
        self._last = (now, living)
        return living
