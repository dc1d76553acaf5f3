"""`gmc estimators`: the list, one rule's page, the scaffold, and their exit codes through the command line."""

import importlib
import json
import os
import re
import subprocess
import sys
from typing import get_args

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.estimators import Level
from gmc.estimators.base import Scope
from gmc.estimators.errors import UnknownEstimatorError
from gmc.estimators.registry import list_estimators

runner = CliRunner()


def run(*arguments, width=80):
    return runner.invoke(app, ["estimators", *arguments], env={"COLUMNS": str(width), "TERM": "dumb"})


@pytest.mark.unit
def test_the_list_names_every_rule_with_scope_and_origin():
    result = run()
    assert result.exit_code == 0
    for found in list_estimators():
        assert re.search(rf"^{found.name} +(token|sequence|group|batch) ", result.stdout, re.MULTILINE), found.name
    assert "from gmc-rl " in result.stdout


@pytest.mark.unit
@pytest.mark.parametrize("command", [(), ("show", "gmc"), ("show", "gac"), ("show", "vcpo")])
def test_tables_fit_80_columns(command):
    lines = run(*command).stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert not any("…" in line for line in lines if "--set estimator.…" not in line), "a cell was cut off"


@pytest.mark.unit
def test_the_list_can_be_narrowed_by_text_and_by_scope():
    def names(*arguments):
        return {rule["name"] for rule in json.loads(run("list", *arguments, "--json").stdout)["estimators"]}

    assert get_args(Level) == get_args(Scope)
    everything = names()
    by_scope = {scope: names("--scope", scope) for scope in get_args(Scope)}
    assert set.union(*by_scope.values()) == everything
    assert sum(map(len, by_scope.values())) == len(everything)
    assert "gmc" in by_scope["group"]
    assert names("GMC") >= {"gmc", "token-gmc"}
    assert names("truncated", "--scope", "group") == names("truncated") & by_scope["group"] == {"group-truncated", "vcpo"}
    nothing = run("list", "no such words", "--scope", "batch")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "'no such words' in its name or summary and the scope batch" in nothing.stderr


@pytest.mark.unit
def test_the_list_as_json():
    result = run("--json")
    rules = {rule["name"]: rule for rule in json.loads(result.stdout)["estimators"]}
    assert rules["gmc"]["scope"] == "group"
    assert rules["gmc"]["error"] is None
    assert rules["a3po"]["needs"] == ["behavior log-probs", "version lags"]
    assert rules["gmc"]["distribution"].startswith("gmc-rl ")


@pytest.mark.unit
def test_show_prints_formula_settings_with_ranges_reference_and_evidence():
    words = " ".join(run("show", "gmc").stdout.split())
    for part in ("α = min{1, (1+ε)/ρ̄}", "epsilon 0.28 a number > -1", "2610.01896", "reconstruction", "gmc.estimators.gmc:GMC"):
        assert part in words


@pytest.mark.unit
def test_show_as_json():
    record = json.loads(run("show", "vcpo", "--json").stdout)
    assert {
        "name": "c",
        "default": "8.0",
        "allowed": "a number ≥ 1",
        "description": "trajectory ratios are truncated at c",
    } in (record["settings"])


@pytest.mark.unit
def test_an_unknown_rule_is_a_usage_error_in_one_line():
    result = run("show", "gmcc")
    assert result.exit_code == 2
    assert not isinstance(result.exception, UnknownEstimatorError)
    assert "Did you mean gmc?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.unit
def test_a_broken_plugin_is_shown_with_its_cause_and_the_rest_still_works(tmp_path, monkeypatch):
    info = tmp_path / "half_done-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-done\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[gmc.estimators]\nhalf = half_done_module:Rule\n")
    (tmp_path / "half_done_module.py").write_text("import a_missing_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run()
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "from half-done 0.3" in words
    assert "ModuleNotFoundError" in words.replace(" ", "")
    assert "gmc" in words
    assert run("show", "half").exit_code == 2


@pytest.mark.process
def test_a_new_rule_installs_and_passes_its_own_test(tmp_path):
    result = run("new", "my-rule", "--out", str(tmp_path))
    assert result.exit_code == 0
    folder = tmp_path / "gmc-my-rule"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "README.md",
        "gmc_my_rule/__init__.py",
        "gmc_my_rule/rule.py",
        "pyproject.toml",
        "tests/test_my_rule.py",
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(folder / "pyproject.toml"),
        str(folder),
    ]
    done = subprocess.run(command, cwd=folder, env=_with_path(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    lint = subprocess.run([sys.executable, "-m", "ruff", "check"], cwd=folder, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout


def _with_path(folder):
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.mark.unit
def test_a_scaffold_never_overwrites(tmp_path):
    existing = tmp_path / "gmc-my-rule"
    existing.mkdir()
    (existing / "mine.txt").write_text("mine")
    result = run("new", "my-rule", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert [path.name for path in existing.iterdir()] == ["mine.txt"]


@pytest.mark.unit
@pytest.mark.parametrize("name", ["My-Rule", "my_rule", "9rule", "-x", "a--b", "", "../up", "a/b", "naïve", "gmc"])
def test_a_name_that_cannot_be_a_rules_is_refused(tmp_path, name):
    result = run("new", "--out", str(tmp_path), "--", name)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unit
@pytest.mark.parametrize("name", ["class", "x", "a-1-b"])
def test_unusual_names_make_importable_packages(tmp_path, monkeypatch, name):
    assert run("new", name, "--out", str(tmp_path)).exit_code == 0
    monkeypatch.syspath_prepend(str(tmp_path / f"gmc-{name}"))
    module = importlib.import_module(f"gmc_{name.replace('-', '_')}.rule")
    assert getattr(module, "".join(part.capitalize() for part in name.split("-"))).name == name
