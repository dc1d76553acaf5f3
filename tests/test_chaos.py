"""A sample of `python -m tests.full chaos`: a few faults, deaths and power losses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

REAL_DEATHS = """
import json, sys
from pathlib import Path
sys.path.insert(0, "tests")
from tests.chaos.drive import Bench
from tests.chaos.scenes import SCENES, warm
from tests.chaos.shim import Place

warm()
bench = Bench(SCENES["rollout"], Path(sys.argv[1]))
found = []
for kind, name in (("before", "replace"), ("after", "replace"), ("torn", "write")):
    place = Place("main", [index for index, (operation, _) in enumerate(bench.operations["main"]) if operation == name][-1])
    tried = bench.harm_really(kind, place)
    found.append([tried.met, tried.broken, bench.left == bench.left_by(kind, place)])
print(json.dumps([found, bench.distinct]))
"""


@pytest.mark.process
def test_a_sample_of_faults_ends_as_if_there_were_none(tmp_path):
    scenes = [part for name in ("rollout", "train --delay 1", "follower") for part in ("--scene", name)]
    command = [sys.executable, "-m", "tests.full", "chaos", "--points", "4", "--jobs", "2", *scenes]
    command += ["--out", str(tmp_path / "results.json")]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert {name: (sum(found["tried"].values()), found["violations"]) for name, found in results.items()} == {
        "rollout": (4, []),
        "train --delay 1": (4, []),
        "follower": (4, []),
    }
    operations = results["train --delay 1"]["operations"]
    assert operations["main"] > 80
    assert operations["writer"] > 200
    assert [results[name]["met"] for name in ("rollout", "train --delay 1")] == [4, 4]


@pytest.mark.process
def test_a_death_leaves_what_the_undisturbed_run_showed(tmp_path):
    done = subprocess.run([sys.executable, "-c", REAL_DEATHS, str(tmp_path)], cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[True, [], True]] * 3, 3]


@pytest.mark.unit
def test_the_page_says_what_the_last_whole_run_found():
    page = (TESTS.parent / "docs" / "reliability.md").read_text("utf-8").replace("`", "")
    for name, found in json.loads((TESTS / "chaos" / "results.json").read_text("utf-8")).items():
        assert found["violations"] == []
        assert found["position"] == sum(found["possible"].values()) == sum(found["tried"].values())
        counts = sum(found["operations"].values()), found["position"], found["met"], found["distinct"] or "-"
        shown = (*counts, 0, found["commit"])
        assert f"| {name} | {' | '.join(map(str, shown))} |" in page
