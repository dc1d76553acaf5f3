"""The studies that ship: every file can be planned, and its size is what docs/lab says."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[1] / "recipes" / "lab"
RUNS = {
    "s2": {"tuning": 66, "verdict": 80},
    "s3": {"verdict": 48},
    "s4": {"verdict": 120},
    "s5": {"verdict": 72},
    "s8": {"verdict": 48},
    "s9": {"verdict": 252},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_shipped_study_can_be_planned(name, tmp_path):
    arguments = ["lab", "sweep", str(FOLDER / f"{name}.toml"), "--dry-run", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert {stage["stage"]: stage["runs"] for stage in plan["stages"]} == RUNS[name]
    assert plan["question"]


def test_every_sweep_that_ships_is_planned_here():
    sweeps = {path.stem for path in FOLDER.glob("s*.toml") if "[arms." in path.read_text("utf-8")}
    assert sweeps == RUNS.keys()
