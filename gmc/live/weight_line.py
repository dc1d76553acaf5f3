"""What a sender of weights and a follower say to each other: one JSON object a line over a TCP connection.

    {"token": …, "name": …}                         the follower first; answered by {"run": run id}
    {"version": 7}                                  asks for a policy; the sender then says any number of
    {"call": "/update_weights", "body": {…}}        what vLLM's sender wants done, answered by {} when it is done
    {"sent": 7}, or {"refused": reason}             and last one of these

The token stands in `transfer.json` of the run: who can read the run can have its weights, and nobody else.
"""

import contextlib
import json
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gmc.errors import DataError, GmcError
from gmc.store.files import read_json
from gmc.store.formats import read_format

LONGEST = 2**26
"""Bytes of a line: a transfer names each of its tensors."""


STEP_SECONDS, SLOWEST = 60.0, 2e8
"""How long a step of a transfer may take: this, and a time for its bytes at so many a second."""


class LineError(GmcError):
    """The other end is gone, silent, or says what nobody understands."""


@dataclass(frozen=True)
class SenderAddress:
    """Where a run's sender listens. hosts: to try in turn; token: what a follower has to know."""

    run_id: str
    hosts: list[str]
    port: int
    token: str


def step_seconds(size: int) -> float:
    """How long one step of a transfer of so many bytes may take."""
    return STEP_SECONDS + size / SLOWEST


def read_address(path: Path) -> SenderAddress | None:
    """What `transfer.json` says, None where there is none. Raises `DataError` for a damaged one."""
    if not path.is_file():
        return None
    content = read_json(path)
    read_format(path, content)
    try:
        return TypeAdapter(SenderAddress).validate_python(content)
    except ValidationError as error:
        raise DataError(f"{path}: entry {error.errors()[0]['loc']} is bad; the trainer writes it again on --resume") from error


class Line:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""
        connection.setblocking(False)

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def peer(self) -> str:
        """Host and port of the other end."""
        host, port = self._connection.getpeername()[:2]
        return f"{host}:{port}"

    def say(self, record: dict[str, Any], seconds: float) -> None:
        """Send one object. Raises `LineError` when it cannot be sent within this time."""
        try:
            self._connection.settimeout(seconds)
            self._connection.sendall(json.dumps(record).encode() + b"\n")
        except OSError as error:
            raise LineError(f"the connection broke ({error})") from error
        finally:
            with contextlib.suppress(OSError):
                self._connection.setblocking(False)

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next object. Raises `LineError` when none comes within this time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._connection], [], [], left)[0]:
                raise LineError(f"nothing was said for {seconds:.0f} s")
            self._read()
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            record = json.loads(text)
        except ValueError as error:
            raise LineError(f"{text[:100]!r} is no JSON") from error
        if not isinstance(record, dict):
            raise LineError(f"{text[:100]!r} is no object")
        return record

    def lost(self) -> bool:
        """Whether the other end has gone."""
        with contextlib.suppress(LineError):
            if select.select([self._connection], [], [], 0)[0]:
                self._read()
            return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _read(self) -> None:
        try:
            part = self._connection.recv(2**16)
        except OSError as error:
            raise LineError(f"the connection broke ({error})") from error
        if not part:
            raise LineError("the other end has gone")
        self._buffer += part
        if len(self._buffer) > LONGEST:
            raise LineError(f"a line of more than {LONGEST} bytes")
