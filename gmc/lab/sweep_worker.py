"""A worker process of a sweep: makes one run after the other in one interpreter. Started by `gmc.lab.sweep_pool`.

It reads a task a line from stdin and writes what happens, a line of JSON each, to the stdout it was started with. When stdin
ends, because the sweep stops or was killed, it ends in good order after the update in hand, and at the latest after
`GRACE_SECONDS`.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, Any

from gmc.store.files import strict_json

GRACE_SECONDS = 20.0
REPORT_INTERVAL_SECONDS = 0.5


def main() -> None:
    """Serve until stdin ends."""
    threads = int(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    stop, tasks = threading.Event(), queue.SimpleQueue[dict[str, Any] | None]()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which then ends this process
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    threading.Thread(target=_listen, args=(sys.stdin, stop, tasks), daemon=True).start()
    if threads:
        import torch

        torch.set_num_threads(threads)
    while not stop.is_set():
        try:
            task = tasks.get(timeout=0.5)
        except queue.Empty:
            continue
        if task is None:
            break
        _send(answers, stop, run_task(task, Throttled(lambda line: _send(answers, stop, line)), stop.is_set))


def _listen(source: IO[str], stop: threading.Event, tasks: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    for line in source:
        tasks.put(json.loads(line))
    stop.set()
    tasks.put(None)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _send(answers: IO[str], stop: threading.Event, message: dict[str, Any]) -> None:
    try:
        answers.write(strict_json(message) + "\n")
        answers.flush()
    except BrokenPipeError:
        stop.set()


class Throttled:
    """Passes on progress at most every `REPORT_INTERVAL_SECONDS`, and each change of what is being done."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send, self._phase, self._at = send, "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase or now - self._at > REPORT_INTERVAL_SECONDS:
            self._phase, self._at = phase, now
            self._send({"kind": "progress", "phase": phase, "done": done, "total": total})


def run_task(task: dict[str, Any], report: Callable[[str, int, int], None], stopping: Callable[[], bool]) -> dict[str, Any]:
    """Make one run; the answer says how it ended: finished, failed (with one line, and where it happened) or stopped."""
    from gmc.errors import GmcError
    from gmc.lab.sweep_task import StoppedError, Task, execute

    parsed = Task(**{**task, "base": None if task["base"] is None else tuple(task["base"])})
    try:
        return {"kind": "finished", "found": execute(parsed, report, stopping)}
    except StoppedError:
        return {"kind": "stopped"}
    except GmcError as error:
        return {"kind": "failed", "error": str(error), "trace": ""}
    except Exception as error:  # whatever a rule or a library does wrong ends this run, not the sweep; it is recorded
        line = f"{type(error).__name__}: {str(error) or 'no message'}".splitlines()[0]
        return {"kind": "failed", "error": line, "trace": traceback.format_exc()}


if __name__ == "__main__":
    main()
