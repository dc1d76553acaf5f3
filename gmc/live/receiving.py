"""A follower's way to policies over NCCL: it asks the trainer's sender for one, and reads the folder whenever that fails."""

import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from gmc.engines.nccl import Attempt
from gmc.engines.nccl_receiver import TensorReceiver
from gmc.errors import GmcError
from gmc.live.weight_line import Line, LineError, read_address
from gmc.store.run_directory import RunDirectory

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
TURN_SECONDS = 120.0
"""How long a follower waits to be served: the sender serves one after the other."""

LEAVE_SECONDS = 15.0
FAILURES = 3
"""Transfers in a row that may fail before a follower keeps to the folder."""


class Told(Protocol):
    """What does what the sender says."""

    def post(self, path: str, content: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class _StuckError(GmcError):
    """Something may still write into the weights."""


class Receiving:
    """Takes policies of a run into `tensors`, by name.

    name: the follower's; seconds: how long one step of a transfer may take.
    """

    def __init__(
        self,
        run: RunDirectory,
        name: str,
        tensors: Mapping[str, Tensor],
        *,
        seconds: float,
        receiver: Callable[[Mapping[str, Tensor]], Told] = TensorReceiver,
    ) -> None:
        self._run, self._name, self._seconds = run, name, seconds
        self._receiver = receiver(tensors)
        self._line: Line | None = None
        self._failures = 0

    def take(self, version: int) -> bool:
        """Whether the tensors now hold this policy. If not they may hold anything, and the folder is to be read.

        Raises `GmcError` when NCCL does not let go of them.
        """
        if self._failures >= FAILURES or not self._connected():
            return False
        assert self._line is not None
        try:
            refused = self._serve(self._line, version)
        except Exception as error:  # whatever CUDA, NCCL or vLLM says
            self._fail(version, error)
            return False
        if refused:
            log.info("policy %d is read from the folder (%s)", version, refused)
            return False
        self._failures = 0
        return True

    def close(self) -> None:
        """Leave the sender. May be called twice."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self._receiver.close()

    def _connected(self) -> bool:
        """Have a connection to the sender that is there now. Without one there is nothing wrong: it may come later."""
        if self._line is not None and not self._line.lost():
            return True
        self.close()
        try:
            self._line = self._connect()
        except (GmcError, OSError) as error:
            log.info("no sender of weights: %s", error)
        return self._line is not None

    def _connect(self) -> Line | None:
        address = read_address(self._run.transfer)
        if address is None or address.run_id != self._run.run_id:
            return None
        error: Exception = LineError(f"{self._run.transfer}: names no host")
        for host in address.hosts:
            try:
                line = Line(socket.create_connection((host, address.port), timeout=CONNECT_SECONDS))
            except OSError as refused:
                error = refused
                continue
            try:
                line.say({"token": address.token, "name": self._name}, CONNECT_SECONDS)
                if line.hear(CONNECT_SECONDS).get("run") == self._run.run_id:
                    return line
                error = LineError(f"{host}:{address.port}: is not the sender of this run")
            except LineError as silent:
                error = silent
            line.close()
        raise error

    def _serve(self, line: Line, version: int) -> str:
        """Ask for a policy and do what the sender says until it has come; the reason when the sender refuses."""
        line.say({"version": version}, self._seconds)
        seconds = TURN_SECONDS
        while True:
            said = line.hear(seconds)
            seconds = self._seconds
            if "sent" in said:
                return "" if said["sent"] == version else f"version {said['sent']} came"
            if "refused" in said:
                return str(said["refused"])
            self._do(line, str(said["call"]), said["body"])
            line.say({}, self._seconds)

    def _do(self, line: Line, path: str, body: Mapping[str, Any]) -> None:
        attempt = Attempt(partial(self._receiver.post, path, body))
        if attempt.wait(self._seconds, line.lost):
            attempt.result()
            return
        self._receiver.close()
        if path == "/update_weights" and not attempt.wait(LEAVE_SECONDS):
            raise _StuckError("NCCL does not end a transfer whose sender is gone; start the follower again")
        raise LineError("the sender has gone" if line.lost() else f"{path} took more than {self._seconds:.0f} s")

    def _fail(self, version: int, error: Exception) -> None:
        self.close()
        if isinstance(error, _StuckError):
            raise error
        self._failures += 1
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        further = "; so are all further ones" if self._failures == FAILURES else ""
        log.warning("policy %d did not come over NCCL (%s) and is read from the folder%s", version, reason, further)
