"""Followers without torch and with pretended work claim and publish for a minute: no batch made twice, no number lost.

python -m tests.full claims [FOLLOWERS] [SECONDS]

They are processes of their own, forked from one that has imported what they need, so that starting 64 of them takes no minute.
"""

import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where pytest finds what tests share

from live_processes import follower, trainer

from gmc.live.claims import read_ledger
from gmc.store.files import read_jsonl
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory

UPDATE_SECONDS, BATCH_SECONDS, LEASE_SECONDS = 0.1, 2.0, 60.0
GRACE_SECONDS = 120.0
"""How long followers may take to see that the run has ended; then they are killed, and the check has failed."""


def main() -> int:
    """Run it, print what happened, and return 1 when something is doubled or lost, or somebody had to be killed."""
    followers, seconds = [int(text) for text in sys.argv[1:3]] + [64, 60][len(sys.argv) - 1 :]
    if "torch" in sys.modules:
        print("torch is loaded: what claims and publishes must not need it")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "run", model="embedded", seed=0)
        failed, took = work(run, followers, seconds)
        faults, made = faults_of(run)
        updates = len(read_jsonl(run.used))
    print(
        f"{followers} followers, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores: {made} batches in {took:.0f} s, "
        f"{made / took:.1f} a second; {updates} updates"
    )
    faults += failed
    print("\n".join(faults) or "no batch was made twice and no number is lost")
    return bool(faults)


def work(run: RunDirectory, followers: int, seconds: float) -> tuple[list[str], float]:
    """Let them work; who did not end well, and the seconds it took until the run had ended."""
    ahead = 2 * followers
    started = {
        forked(lambda: follower(run, ahead, LEASE_SECONDS, BATCH_SECONDS)): f"follower {index}" for index in range(followers)
    }
    began = time.monotonic()
    last = forked(lambda: trainer(run, 10**9, UPDATE_SECONDS, 10, seconds=seconds))
    started[last] = "the trainer"
    codes: dict[int, int] = {}
    took = 0.0
    deadline = began + seconds + GRACE_SECONDS
    while len(codes) < len(started):
        for pid in started.keys() - codes.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if last in codes and not took:
            took = time.monotonic() - began
        if time.monotonic() > deadline or codes.get(last):
            for pid in started.keys() - codes.keys():
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return [f"{name} ended with {codes[pid]}" for pid, name in started.items() if codes[pid]], took


def forked(do: Callable[[], None]) -> int:
    """Do something in a process of its own; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        do()
        code = 3 if "torch" in sys.modules else 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def faults_of(run: RunDirectory) -> tuple[list[str], int]:
    """What is doubled or lost, and how many batches were made."""
    names = [match for path in run.rollouts.iterdir() if (match := re.fullmatch(ROLLOUT_NAME, path.name))]
    made = Counter(int(match[1]) for match in names)
    records = read_jsonl(run.used)
    used = Counter(group[0] for record in records for group in record["groups"])
    faults = [f"batch {batch} has {count} shards" for batch, count in made.items() if count > 1]
    faults += [f"batch {batch} was used {count} times" for batch, count in used.items() if count > 1]
    faults += [f"batch {batch} is missing" for batch in range(max(made)) if batch not in made]
    if len(used) != len(records):
        faults.append(f"{len(used)} batches were used in {len(records)} updates")
    if read_ledger(run).launched != len(made):
        faults.append(f"{read_ledger(run).launched} batches were launched and {len(made)} made")
    return faults, len(made)


if __name__ == "__main__":
    sys.exit(main())
