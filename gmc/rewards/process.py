"""A process that answers questions one at a time, and is killed with everything it has started when it takes too long."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import gmc
from gmc.errors import GmcError
from gmc.lifeline import Lifeline
from gmc.rewards.sweeping import VARIABLE, end_started, new_mark
from gmc.rewards.wire import dumps, loads

ENDING_SECONDS = 5.0
"""How long a worker whose output is closed may take to end by itself, on a busy machine too."""

KEPT_BYTES = 2000
"""Of what a worker prints."""

SHOWN = 300
"""Characters of its last line that an error shows."""

NO_ANSWER = "its process wrote something else than an answer, and was ended"


class WorkerTimeoutError(GmcError):
    """The worker did not answer in time; it was killed. last: the last remark it made about its progress."""

    def __init__(self, text: str, last: Any) -> None:
        super().__init__(text)
        self.last = last


class WorkerDiedError(GmcError):
    """The worker ended without an answer; the text says how, and the last line it wrote to standard error. code: its exit code,
    negative for a signal."""

    def __init__(self, text: str, last: Any, code: int) -> None:
        super().__init__(text)
        self.last = last
        self.code = code


class Worker:
    """A fresh interpreter that runs a module of gmc: one value a line on its standard input, one a line back.

    It leads a process group of its own, so Ctrl-C reaches only the run, and what it leaves behind is killed with it, also when
    the run itself is killed. What has left that group is killed when the run ends the worker (`gmc.rewards.sweeping`).
    It starts with the first question. A line with the key "at" is a remark about progress and no answer.
    """

    def __init__(self, module: str, arguments: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""
        self._words = b""
        self._lifeline: Lifeline | None = None
        self._buffer = b""

    @property
    def running(self) -> bool:
        """Whether it has been started and not ended."""
        return self._process is not None

    def ask(self, question: Any, seconds: float, forms: Sequence[Collection[str]] = ()) -> Any:
        """Its answer. forms: where it is a record, the keys that one may have.

        Raises `WorkerTimeoutError` after `seconds`, `WorkerDiedError` when it ends instead, or when somebody's code has written
        something else where answers go; it is then gone, and the next question starts another."""
        if self._process is None:
            self._start()
        assert self._process is not None
        line = dumps(question)
        deadline = time.monotonic() + seconds
        last = None
        try:
            while True:
                reply = self._exchange(line, deadline)
                line = b""
                if reply is None:
                    raise WorkerTimeoutError(f"no answer within {seconds:g} s", last)
                if reply == b"":
                    raise self._death(last)
                answer = self._read(reply, forms, last)
                if not (isinstance(answer, dict) and "at" in answer):
                    return answer
                last = answer["at"]
        except BaseException:  # also Ctrl-C: an answer that nobody waits for must not be taken for the next one
            self.close()
            raise

    def close(self) -> None:
        """Kill it and everything that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGSTOP)  # nothing more is started
            end_started(process.pid, self._mark)
            kill_group(process.pid)
            process.wait()
        else:
            kill_group(process.pid)
            end_started(None, self._mark)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self._lifeline is not None:
            self._lifeline.close()
        self._lifeline, self._buffer, self._words = None, b"", b""

    def _start(self) -> None:
        source = str(Path(gmc.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._lifeline, self._mark = Lifeline(), new_mark()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), VARIABLE: self._mark} | self._lifeline.environment,
            pass_fds=[self._lifeline.reader],
            start_new_session=True,
        )
        self._lifeline.started()
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        for stream in (self._process.stdin, self._process.stderr):
            os.set_blocking(stream.fileno(), False)

    def _exchange(self, line: bytes, deadline: float) -> bytes | None:
        """Write what is left of the question while reading; the next line, empty at the end of its output, None when late."""
        assert self._process is not None
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        assert self._process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(self._process.stderr, selectors.EVENT_READ)
            if line:
                selector.register(stdin, selectors.EVENT_WRITE)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                for key, _ in selector.select(left):
                    if key.fileobj is stdin:
                        try:
                            line = line[os.write(stdin.fileno(), line[:65536]) :]
                        except BrokenPipeError:
                            line = b""  # it died; its closed output says so
                        if not line:
                            selector.unregister(stdin)
                    elif key.fileobj is not stdout:
                        if not self._listen():
                            selector.unregister(key.fileobj)
                    elif data := os.read(stdout.fileno(), 1 << 16):
                        self._buffer += data
                    else:
                        return b""
        first, _, self._buffer = self._buffer.partition(b"\n")
        return first

    def _read(self, reply: bytes, forms: Sequence[Collection[str]], last: Any) -> Any:
        try:
            answer = loads(reply)
        except (ValueError, TypeError, LookupError, RecursionError, ArithmeticError) as error:  # whatever tags hold
            raise WorkerDiedError(NO_ANSWER, last, -signal.SIGKILL) from error
        remark = isinstance(answer, dict) and "at" in answer
        if forms and not remark and not (isinstance(answer, dict) and any(answer.keys() == {*form} for form in forms)):
            raise WorkerDiedError(NO_ANSWER, last, -signal.SIGKILL)
        return answer

    def _listen(self) -> bool:
        """Take what was printed, of which the end is kept: a flood must fill no disk. False at the end of it."""
        assert self._process is not None
        assert self._process.stderr is not None
        try:
            said = os.read(self._process.stderr.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self._words = (self._words + said)[-KEPT_BYTES:]
        return bool(said)

    def _death(self, last: Any) -> WorkerDiedError:
        assert self._process is not None
        own = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)  # its output is closed a moment before it has ended, and with what code
            own = True
        kill_group(self._process.pid)
        code = self._process.wait()
        while self._listen():
            pass
        words = self._words.decode(errors="replace").strip().rpartition("\n")[2]
        words = words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        if not own:
            how = "closed its output without an answer, and was ended"
        return WorkerDiedError(f"its process {how}{': ' + words if words else ''}", last, code)


def signal_name(number: int) -> str:
    """Its name, or its number where Python knows none, as for those of real time.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_group(leader: int) -> None:
    """Kill a process group by its leader's id, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
