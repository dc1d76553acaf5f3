"""The trainer's side of sending weights over NCCL: it starts the process that sends, and starts it again when it has failed."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from gmc.lifeline import Lifeline
from gmc.store.run_directory import RunDirectory
from gmc.training.sampler_process import sampler_environment

log = logging.getLogger(__name__)

PROGRAM = ("-m", "gmc.live.weight_sender")
POLL_SECONDS = 0.5
FAILURES, WITHIN_SECONDS = 5, 3600.0
"""A sender that has ended this often within this time is not started again: followers read the folder."""


class WeightSender:
    """A context within which a process sends published policies to followers that ask for them.

    device: number of the trainer's GPU, as torch counts it here, which the process uses beside training.
    """

    def __init__(self, run: RunDirectory, device: int) -> None:
        self._run, self._device = run, device
        self.log_file: Path = run.engine_log("weights")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="weight-sender", daemon=True)
        self._lifeline: Lifeline | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WeightSender":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        ends: list[float] = []
        while not self._ended.is_set() and len(ends) < FAILURES:
            self._start()
            assert self.process is not None
            while self.process.poll() is None and not self._ended.wait(POLL_SECONDS):
                pass
            self._stop()
            if not self._ended.is_set():
                now = time.monotonic()
                ends = [*(end for end in ends if now - end < WITHIN_SECONDS), now]
                self._say(len(ends) == FAILURES)

    def _start(self) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._lifeline = Lifeline()
        environment = sampler_environment([str(self._device)], os.environ)
        with open(self.log_file, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *PROGRAM, str(self._run.path.absolute()), self._run.run_id],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment | self._lifeline.environment,
                pass_fds=[self._lifeline.reader],
                start_new_session=True,
            )
        self._lifeline.started()

    def _stop(self) -> None:
        """Whatever it is in the middle of: a follower that loses it reads the folder."""
        assert self.process is not None
        assert self._lifeline is not None
        self.process.kill()
        self.process.wait()
        self._lifeline.close()
        self._run.transfer.unlink(missing_ok=True)

    def _say(self, last: bool) -> None:
        what = "is not started again, and followers read the folder" if last else "is started again"
        log.warning("the process that sends weights ended and %s; its messages are in %s", what, self.log_file)
