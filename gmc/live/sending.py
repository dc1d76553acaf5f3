"""The trainer's sender of weights: a process that gives published policies to followers over NCCL, one after the other.

Each follower is a group of its own with this process, opened when it first asks; so one that comes late, dies or is started
anew concerns no other. What is sent is read from the published folder, which stays the truth, and training is not asked.

A process of its own, because a transfer whose follower is gone never ends: its kernel waits on the GPU, and so would whatever
trains there. Whatever goes wrong within a transfer ends this process, and the trainer starts another one.
"""

import contextlib
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from safetensors import safe_open
from torch import Tensor

from gmc.engines.nccl import open_sender
from gmc.errors import DataError
from gmc.live.weight_line import Line, LineError, SenderAddress, step_seconds
from gmc.store.files import is_ready, write_json
from gmc.store.formats import stamp
from gmc.store.policies import StoredTensors, read_policy_info
from gmc.store.run_directory import RunDirectory, policy_name

HELLO_SECONDS = 5.0
POLL_SECONDS = 1.0
FAILED = 3
"""Exit code after a transfer that failed."""


def end_process(reason: str) -> None:
    """At once: threads and kernels that wait for a follower would keep a process that ends in good order."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(FAILED)


class Sender:
    """Serves followers until the process ends. failed: is told what went wrong within a transfer, and does not return."""

    def __init__(self, run: RunDirectory, failed: Callable[[str], None] = end_process) -> None:
        self._run, self._failed = run, failed
        self._token = secrets.token_hex(16)
        self._lines: dict[Line, _Follower | None] = {}
        self._listener = socket.create_server(("", 0))

    def announce(self) -> None:
        """Say in the run where this process listens."""
        address = SenderAddress(self._run.run_id, list(_hosts()), self._listener.getsockname()[1], self._token)
        write_json(self._run.transfer, {**stamp(), **asdict(address)})

    def step(self, seconds: float = POLL_SECONDS) -> None:
        """Serve whoever has said something; returns at the latest after so many seconds."""
        sources: list[Any] = [self._listener, *self._lines]
        for ready in select.select(sources, [], [], seconds)[0]:
            if ready is self._listener:
                self._lines[Line(self._listener.accept()[0])] = None
                continue
            try:
                self._answer(ready)
            except LineError:
                self._drop(ready)

    def close(self) -> None:
        for line in list(self._lines):
            self._drop(line)
        self._listener.close()

    def _drop(self, line: Line) -> None:
        follower = self._lines.pop(line)
        line.close()
        if follower is not None:
            follower.leave()

    def _answer(self, line: Line) -> None:
        said = line.hear(HELLO_SECONDS)
        follower = self._lines[line]
        if follower is None:
            if not secrets.compare_digest(str(said.get("token")), self._token):
                raise LineError("another token")
            self._lines[line] = _Follower(str(said.get("name")), line, self._failed)
            line.say({"run": self._run.run_id}, HELLO_SECONDS)
            return
        version = said.get("version")
        try:
            tensors = self._tensors(version)
        except Exception as error:  # the follower reads the folder and says what is wrong with it
            line.say({"refused": f"{type(error).__name__}: {error}".splitlines()[0]}, HELLO_SECONDS)
            return
        follower.send(tensors)
        line.say({"sent": version}, HELLO_SECONDS)

    def _tensors(self, version: Any) -> StoredTensors:
        """The weights of a published policy of this run, not yet read."""
        folder = self._run.policies / policy_name(int(version))
        info = read_policy_info(folder)
        if not is_ready(folder) or info.run_id != self._run.run_id:
            raise DataError(f"{folder}: is no policy of this run")
        files = dict[str, str]()
        for name in sorted(info.files):
            with safe_open(folder / name, framework="pt") as file:
                files |= dict.fromkeys(file.keys(), name)
        return StoredTensors(folder, files)


class _Follower:
    """A follower as vLLM's sender is told of it: `gmc.engines.nccl.Receiver`."""

    def __init__(self, name: str, line: Line, failed: Callable[[str], None]) -> None:
        self.name, self.url = name, f"tcp://{line.peer}"
        self._line, self._failed, self._seconds = line, failed, 0.0
        self._sender: Any = None
        self._given: StoredTensors | None = None

    def send(self, tensors: StoredTensors) -> None:
        """Give it these weights. Whatever keeps it from having them is reported, also when NCCL never returns."""
        self._given = tensors
        self._seconds = step_seconds(sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
        timer = threading.Timer(2 * self._seconds, self._fail, [f"a transfer took more than {2 * self._seconds:.0f} s"])
        timer.daemon = True
        timer.start()
        try:
            if self._sender is None:
                self._sender = open_sender([self], [1], self._weights)
            self._sender.send_weights()
        except Exception as error:  # whatever CUDA, NCCL or vLLM says
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            timer.cancel()

    def post(self, path: str, content: Any) -> None:
        """In a thread of vLLM's, which looks at what it raises only when NCCL has returned."""
        try:
            self._line.say({"call": path, "body": content}, HELLO_SECONDS)
            self._line.hear(self._seconds)
        except LineError as error:
            self._fail(str(error))
            raise

    def leave(self) -> None:
        """Close its group."""
        if self._sender is not None:
            self._sender.shutdown()

    def _weights(self) -> Mapping[str, Tensor]:
        assert self._given is not None
        return self._given

    def _fail(self, what: str) -> None:
        self._failed(f"{self.name}: {what}")


def _hosts() -> Iterator[str]:
    """Under which names other machines may reach this one."""
    yield socket.gethostname()
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("10.255.255.255", 9))  # sends nothing: it shows the address of the way out
        yield route.getsockname()[0]
