"""All benchmarks, one after another: tables on stderr, one JSON object on stdout.

    python -m benchmarks [--trl PYTHON | --make-trl FOLDER] [--json FILE]

Set OMP_NUM_THREADS to the number of quiet cores. Takes about twenty minutes on two cores with TRL, a third of that without,
and 20 GB of memory.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks import meter
from benchmarks.update import ROOT, make_trl

PARTS = {
    "embedded update": ["update", "--shapes", "embedded"],
    # Without checkpointing TRL needs more memory than most machines have for these.
    "135M updates": ["update", "--shapes", "paper-like", "long", "--trl-checkpointing-only"],
    "generation": ["generation"],
    "storage": ["storage"],
    "scaling": ["scaling"],
}
"""What is measured: the module under `benchmarks` and its arguments."""


def main() -> None:
    """Run every part in a process of its own, so that none inherits another's memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", type=Path, help="Python of an environment that has TRL")
    parser.add_argument("--make-trl", type=Path, metavar="FOLDER", help="create that environment first (downloads packages)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    trl = make_trl(arguments.make_trl) if arguments.make_trl else arguments.trl
    results = {}
    for part, (module, *options) in PARTS.items():
        peer = ["--trl", str(trl)] if module == "update" and trl else []
        command = [sys.executable, "-m", f"benchmarks.{module}", *options, *peer]
        output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[part] = json.loads(output)
    meter.publish(results, arguments.json)


if __name__ == "__main__":
    main()
