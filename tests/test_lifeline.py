"""Helper processes end with a starter that is killed, also those that hang: a stopped one can do nothing about it itself."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

WORKER = """
from gmc.rewards.process import Worker
worker = Worker({module!r})
worker.ask({{"load": [{file!r}, {what!r}, None][:{length}]}}, 60)
print(worker._process.pid, flush=True)
"""
POOL = """
from gmc.grading.pool import Pool
pool = Pool(1)
pool.run([("1", "2")])
print(*pool.pids(), flush=True)
"""

FOLLOWER = """
import threading, time
from pathlib import Path
from gmc.live import fleet_follower
from gmc.store.run_directory import RunDirectory
run = RunDirectory.create(Path({run!r}), model="embedded", seed=0).path
log = run / "logs" / "fleet-0.log"
started = []
class Popen(fleet_follower.subprocess.Popen):
    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        started.append(self.pid)
fleet_follower.subprocess.Popen = Popen
threading.Thread(target=fleet_follower.follow_once, args=(run, [], log), daemon=True).start()
while not (started and "waiting for" in log.read_text()):
    time.sleep(0.05)
print(*started, flush=True)
"""


def worker_of(module, file, what, length):
    return WORKER.format(module=module, file=str(file), what=what, length=length)


@pytest.mark.parametrize("kind", ["reward", "tool", "grading", "follower"])
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a thread of the helper does it, which a stopped one does not run"
)
def test_a_helper_ends_with_a_starter_that_is_killed(tmp_path, kind):
    file = tmp_path / "mine.py"
    file.write_text('def f(completions):\n    """Something."""\n    return [0.0] * len(completions)\n')
    script = {
        "reward": worker_of("gmc.rewards.calling", file, "f", 3),
        "tool": worker_of("gmc.environments.calling", file, ["f"], 2),
        "grading": POOL,
        "follower": FOLLOWER.format(run=str(tmp_path / "run")),
    }[kind]
    command = [sys.executable, "-c", script + "import time; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        helper = int(starter.stdout.readline())
        os.kill(helper, signal.SIGSTOP)
        starter.kill()
    try:
        deadline = time.monotonic() + 30
        while _lives(helper) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _lives(helper)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(helper, signal.SIGKILL)


def _lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
