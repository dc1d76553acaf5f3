"""`gmc` commands as processes forked from a warm one: they can be killed like any other, and starting them costs no imports.

The warm process takes one JSON request a line on stdin and gives one answer a line:

    {"start": ["train", …], "log": FILE}    {"pid": 4711}      FILE gets what it prints
    {"poll": 4711}                          {"code": null}     its exit code, once it has ended
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM = ("gmc.cli.app", "gmc.generation.following", "gmc.training.run", "transformers.models.qwen3.modeling_qwen3")
"""Whatever the commands would import; the last is the embedded model's."""


class Command:
    """One process, with what tests ask of `subprocess.Popen`."""

    def __init__(self, owner: "ForkedCommands", pid: int) -> None:
        self._owner, self.pid = owner, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, minus the signal's number where one ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._owner.ask(poll=self.pid)["code"]
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        """Its exit code. Raises `AssertionError` when it takes longer."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"process {self.pid} does not end"
            time.sleep(0.05)
        return code

    def kill(self) -> None:
        """End it without warning, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkedCommands:
    """Starts commands; close it when all of them have ended."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, __file__], text=True, env=environment, **pipes)

    def start(self, *arguments: str, log: Path) -> Command:
        """`gmc ARGUMENTS` in the folder of the tests."""
        return Command(self, self.ask(start=arguments, log=str(log))["pid"])

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the warm process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def poll(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(arguments: list[str], log: str) -> None:
    """Run the command in a process that was just forked."""
    from gmc.__main__ import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    sys.argv = ["gmc", *arguments]
    main()


def serve() -> None:
    for module in WARM:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            answer: dict[str, Any] = {"code": poll(request["poll"])}
        elif (pid := os.fork()) == 0:
            return become(request["start"], request["log"])
        else:
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
