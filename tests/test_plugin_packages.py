"""Packages outside gmc add rules: the shipped CISPO package and a freshly scaffolded one are installed by pip and train."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
CISPO = ROOT / "plugins" / "gmc-cispo"


def command(*arguments: str | Path, environment: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], env=environment, cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr + result.stdout
    return result


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder of packages that this interpreter sees besides its own: nothing is installed into the environment itself."""
    folder = tmp_path_factory.mktemp("scratch")
    packages = folder / "packages"
    environment = {**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}

    def install(source: Path) -> None:
        command(
            "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", packages, source,
            environment=environment, cwd=folder,
        )  # fmt: skip

    return folder, environment, install


def train_with(rule: str, folder: Path, environment: dict[str, str]) -> dict[str, object]:
    """Two updates under the command line; returns the summary."""
    arguments = ["train", "--run", folder / f"run-{rule}", "--estimator", rule, "--delay", "1", "--updates", "2", "--json"]
    small = ["--prompts", "2", "--group-size", "2", "--max-tokens", "8"]
    return json.loads(command("gmc", *arguments, *small, environment=environment, cwd=folder).stdout)


@pytest.mark.slow
def test_the_cispo_package_installs_and_trains(scratch):
    folder, environment, install = scratch
    install(CISPO)
    listing = json.loads(command("gmc", "estimators", "--json", environment=environment, cwd=folder).stdout)
    (found,) = [rule for rule in listing["estimators"] if rule["name"] == "cispo"]
    assert "gmc-cispo" in json.dumps(found)
    summary = train_with("cispo", folder, environment)
    assert summary["finished"] is True
    assert summary["estimator"] == "cispo"


@pytest.mark.slow
def test_a_scaffolded_package_installs_passes_its_own_test_and_trains(scratch):
    folder, environment, install = scratch
    command("gmc", "estimators", "new", "my-rule", "--out", folder, environment=environment, cwd=folder)
    install(folder / "gmc-my-rule")
    command("pytest", "-q", "-p", "no:cacheprovider", folder / "gmc-my-rule", environment=environment, cwd=folder)
    assert train_with("my-rule", folder, environment)["finished"] is True
