"""`gmc delays`: the list, one delay's page, and a scaffolded package that installs, passes its own test and is used."""

import json
import os
import subprocess
import sys

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.delays.registry import list_delays

runner = CliRunner()


def run(*arguments, width=80):
    return runner.invoke(app, ["delays", *arguments], env={"COLUMNS": str(width), "TERM": "dumb"})


@pytest.mark.unit
def test_the_list_names_every_delay_and_its_origin():
    result = run()
    assert result.exit_code == 0
    for plugin in list_delays():
        assert any(line.startswith(plugin.name + " ") for line in result.stdout.splitlines()), plugin.name
    assert "from gmc" in result.stdout
    assert max(map(cell_len, result.stdout.splitlines())) <= 80


@pytest.mark.unit
def test_the_list_and_a_page_as_json():
    delays = {delay["name"]: delay for delay in json.loads(run("list", "--json").stdout)["delays"]}
    assert delays["uniform"]["usage"] == "uniform:LOW:HIGH"
    assert delays["uniform"]["error"] is None
    page = json.loads(run("show", "shards", "--json").stdout)
    assert (page["generates"], page["needs_existing_shards"], page["live"]) == (False, True, False)
    assert page["code"] == "gmc.delays.shards:ShardsDelay"


@pytest.mark.unit
def test_a_page_says_how_the_delay_is_written():
    words = " ".join(run("show", "length").stdout.split())
    for part in ("length:C or length:mean=M", "length:28:group=mean", "generated in training", "gmc.delays.length:LengthDelay"):
        assert part in words
    assert "made by gmc rollout --follow" in run("show", "live").stdout


@pytest.mark.unit
def test_an_unknown_delay_is_a_usage_error_in_one_line():
    result = run("show", "lenght")
    assert result.exit_code == 2
    assert "Did you mean length?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.unit
def test_a_broken_plugin_is_shown_with_its_cause_and_the_rest_still_works(tmp_path, monkeypatch):
    info = tmp_path / "half_done-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-done\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[gmc.delays]\nhalf = half_done:Half\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = " ".join(run().stdout.split())
    assert "broken" in words
    assert "ModuleNotFoundError: No module named 'half_done'" in words
    assert "uniform:0:64" in words
    assert "cannot be imported" in run("show", "half").stderr


@pytest.mark.unit
@pytest.mark.parametrize("name", ["My-Delay", "my_delay", "9", "uniform", "../up"])
def test_a_name_that_cannot_be_a_delays_is_refused(tmp_path, name):
    result = run("new", "--out", str(tmp_path), "--", name)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.slow
def test_a_scaffolded_package_installs_passes_its_own_test_and_is_used(tmp_path):
    result = run("new", "my-delay", "--out", str(tmp_path), width=200)
    assert result.exit_code == 0, result.stderr
    folder, packages = tmp_path / "gmc-my-delay", tmp_path / "packages"
    environment = {**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}

    def command(*arguments, cwd=tmp_path):
        command = [sys.executable, "-m", *map(str, arguments)]
        done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", packages, folder)
    assert "2 passed" in command("pytest", "-q", "-p", "no:cacheprovider", "-c", folder / "pyproject.toml", folder)
    command("ruff", "check", "--no-cache", cwd=folder)
    listed = {delay["name"]: delay for delay in json.loads(command("gmc", "delays", "--json"))["delays"]}
    assert listed["my-delay"]["distribution"] == "gmc-my-delay 0.1.0"
    lengths = ("--lengths", "lognormal:100:0.5", "--delay", "my-delay:3", "--updates", "100", "--json")
    record = json.loads(command("gmc", "simulate-delay", *lengths))
    assert 3 <= record["delay"]["mean"] < 30
