"""A sample of `python -m tests.full chaos`: a few faults, deaths and power losses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


def test_a_sample_of_faults_ends_as_if_there_were_none(tmp_path):
    scenes = [part for name in ("rollout", "train --delay 1", "follower") for part in ("--scene", name)]
    command = [sys.executable, "-m", "tests.full", "chaos", "--points", "3", "--out", str(tmp_path / "results.json"), *scenes]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert {name: (sum(found["tried"].values()), found["violations"]) for name, found in results.items()} == {
        "rollout": (3, []),
        "train --delay 1": (3, []),
        "follower": (3, []),
    }
    assert results["train --delay 1"]["operations"] > 300
    assert [results[name]["harmed"] for name in ("rollout", "train --delay 1")] == [3, 3]
