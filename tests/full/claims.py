"""64 followers claim and publish at once, without torch and with pretended work: no batch made twice, no number lost.

python -m tests.full claims [FOLLOWERS] [UPDATES]
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gmc.live.claims import read_ledger
from gmc.store.files import read_jsonl
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory

SCRIPT = Path(__file__).parent.parent / "live_processes.py"
UPDATE_SECONDS, BATCH_SECONDS, LEASE_SECONDS = 0.1, 2.0, 30


def main() -> int:
    """Run it, print what happened, and return 1 when something is doubled or lost."""
    followers, updates = [int(text) for text in sys.argv[1:3]] + [64, 600][len(sys.argv) - 1 :]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "run", model="embedded", seed=0)
        seconds = _work(run, followers, updates)
        faults, made = _faults(run, updates)
    print(f"{followers} followers, {updates} updates in {seconds:.0f} s: {made} batches, {made / seconds:.1f} a second")
    print("\n".join(faults) or "no batch was made twice and no number is lost")
    return bool(faults)


def _work(run: RunDirectory, followers: int, updates: int) -> float:
    def start(role: str, *numbers: float) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(SCRIPT), role, str(run.path), *map(str, numbers)]
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})

    processes = [start("follower", 2 * followers, LEASE_SECONDS, BATCH_SECONDS) for _ in range(followers)]
    try:
        while len(list(run.followers.glob("*.json"))) < followers:
            time.sleep(0.1)
        began = time.monotonic()
        trainer = start("trainer", updates, UPDATE_SECONDS, 10)
        processes.append(trainer)
        for process in reversed(processes):
            process.wait(timeout=600)
        return time.monotonic() - began
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _faults(run: RunDirectory, updates: int) -> tuple[list[str], int]:
    names = [match for path in run.rollouts.iterdir() if (match := re.fullmatch(ROLLOUT_NAME, path.name))]
    made = Counter(int(match[1]) for match in names)
    used = Counter(group[0] for record in read_jsonl(run.used) for group in record["groups"])
    faults = [f"batch {batch} has {count} shards" for batch, count in made.items() if count > 1]
    faults += [f"batch {batch} was used {count} times" for batch, count in used.items() if count > 1]
    faults += [f"batch {batch} is missing" for batch in range(max(made)) if batch not in made]
    if len(used) != updates:
        faults.append(f"{len(used)} batches were used in {updates} updates")
    if read_ledger(run).launched != len(made):
        faults.append(f"{read_ledger(run).launched} batches were launched and {len(made)} made")
    return faults, len(made)


if __name__ == "__main__":
    sys.exit(main())
