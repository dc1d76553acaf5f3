"""The studies that ship: every file can be planned, and its size is what docs/lab says."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "recipes" / "lab"
RUNS = {
    "s2": {"tuning": 66, "verdict": 80},
    "s2-128": {"verdict": 16},
    "s3": {"verdict": 56},
    "s4": {"verdict": 48},
    "s5": {"verdict": 48},
    "s6": {"verdict": 40},
    "s7": {"tuning": 8, "verdict": 16},
    "s8": {"verdict": 32},
    "s9": {"verdict": 48},
}


@pytest.fixture
def plugins_installed(tmp_path, monkeypatch):
    """Every package of this repository as pip would register it: two studies name rules and an engine of them."""
    site = tmp_path / "site"
    for folder in [ROOT / "benchmarks" / "lab-controls", *sorted((ROOT / "plugins").glob("gmc-*"))]:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        (info / "entry_points.txt").write_text("".join(map(_section, project["entry-points"].items())))
        monkeypatch.syspath_prepend(folder)
    monkeypatch.syspath_prepend(site)


def _section(group):
    name, points = group
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())


@pytest.mark.parametrize("name", RUNS)
def test_a_shipped_study_can_be_planned(name, tmp_path, plugins_installed):
    arguments = ["lab", "sweep", str(FOLDER / f"{name}.toml"), "--dry-run", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert {stage["stage"]: stage["runs"] for stage in plan["stages"]} == RUNS[name]
    assert plan["question"]


def test_every_sweep_that_ships_is_planned_here():
    sweeps = {path.stem for path in FOLDER.glob("s*.toml") if "[arms." in path.read_text("utf-8")}
    assert sweeps == RUNS.keys()
