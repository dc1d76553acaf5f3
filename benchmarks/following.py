"""A follower's batches a second with a reward that takes its time, as a judge elsewhere does, beside another version of gmc.

    python -m benchmarks.following [--other PYTHON] [--repeats 3] [--waits 0 0.1 0.3] [--json FILE]

The reward sleeps for so many seconds a batch and takes no CPU. `--other` names the Python of an environment that has the other
version, in whose place the same file is run. Seconds are those between the first shard and the last, without the start.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BATCHES = 12
REWARD = """import time

def judged(completions, **columns):
    time.sleep({wait})
    return [float(len(completion) % 2) for completion in completions]
"""


def main() -> None:
    """Parse the command line; measure, and print tables on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="Python of an environment with another version of gmc")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--waits", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        print(json.dumps(_follow(arguments.worker)))
        return
    from benchmarks import meter

    pythons = {"gmc": Path(sys.executable)} | ({"other": arguments.other} if arguments.other else {})
    rows = []
    for wait in arguments.waits:
        runs = {name: lambda python=python, wait=wait: _measured(python, wait) for name, python in pythons.items()}
        seconds = {name: meter.median(found) for name, found in meter.interleaved(runs, arguments.repeats).items()}
        rows.append(
            {"reward, s a batch": wait}
            | {f"{name}, s a batch": each for name, each in seconds.items()}
            | {f"{name} / gmc": each / seconds["gmc"] for name, each in seconds.items() if name != "gmc"}
        )
    meter.show(f"a follower of the embedded model, {BATCHES} batches of 8 x 8 responses, one thread", rows)
    meter.publish({"machine": meter.machine(), "rows": rows}, arguments.json)


def _measured(python: Path, wait: float) -> float:
    command = [str(python), str(Path(__file__).resolve()), "--worker", str(wait)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return float(json.loads(ended.stdout.splitlines()[-1]))


def _follow(wait: float) -> float:
    """Make `BATCHES` batches of version 0 in the working directory; seconds a batch behind the first."""
    from gmc.generation.following import follow_run
    from gmc.models import load_model
    from gmc.resolving.resolve import resolve_settings
    from gmc.store.policies import publish_policy
    from gmc.store.run_directory import RunDirectory

    Path("slow_reward.py").write_text(REWARD.format(wait=wait))
    assignments = ["delay=live", f"live.max_ahead={BATCHES}", "reward.parts=slow_reward.py:judged"]
    settings: Any = resolve_settings(assignments=assignments)
    run = RunDirectory.create(Path("run"), model="embedded", seed=0)
    publish_policy(load_model("embedded"), run.policies, 0, run.run_id)

    def shards() -> list[float]:
        return sorted(path.stat().st_mtime for path in run.rollouts.glob("*.parquet"))

    follow_run(run, settings, stopping=lambda: len(shards()) >= BATCHES)
    made = shards()
    return (made[-1] - made[0]) / (len(made) - 1)


if __name__ == "__main__":
    main()
