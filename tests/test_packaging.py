"""Wheels of gmc and of its plug-ins install side by side without an index, and rule packages written for 0.1 go on working."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
FROZEN = ROOT / "tests" / "data" / "frozen" / "gmc-frozen-rule"
PLUGIN = ROOT / "plugins" / "gmc-cispo"


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.mark.slow
def test_wheels_of_the_core_and_a_plugin_install_without_an_index_and_run(tmp_path: Path) -> None:
    wheels, environment = tmp_path / "wheels", tmp_path / "environment"
    for folder in (ROOT, PLUGIN):
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, folder)
    names = sorted(path.name.split("-")[0] for path in wheels.glob("*.whl"))
    assert names == ["gmc_cispo", "gmc_rl"]
    run(sys.executable, "-m", "venv", environment)
    (site,) = environment.glob("lib/python*/site-packages")
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels.glob("*.whl"))
    # Libraries come from this environment; a .pth file would also bring its editable gmc, so it is put behind.
    (site / "sitecustomize.py").write_text(f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r})\n")
    assert run(environment / "bin" / "gmc", "--version", cwd=tmp_path).strip().startswith("gmc ")
    where = run(python, "-c", "import gmc; print(gmc.__file__)", cwd=tmp_path).strip()
    assert where.startswith(str(environment))
    recipes = run(python, "-c", "from gmc.config.recipes import recipes_directory as d; print(len(list(d().glob('*.toml'))))")
    assert int(recipes) == len(list((ROOT / "recipes").glob("*.toml")))
    rules = json.loads(run(environment / "bin" / "gmc", "estimators", "--json", cwd=tmp_path))["estimators"]
    owners = {rule["name"]: rule["distribution"] for rule in rules}
    assert owners["cispo"].startswith("gmc-cispo ")
    assert owners["gmc"].startswith("gmc-rl ")
    delays = json.loads(run(environment / "bin" / "gmc", "delays", "--json", cwd=tmp_path))["delays"]
    assert {"fixed", "length"} <= {delay["name"] for delay in delays}


@pytest.mark.slow
def test_a_rule_package_of_0_1_installs_passes_its_test_trains_and_is_warned_about(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    environment = {**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", packages]
    run(*pip, FROZEN)
    shutil.copytree(FROZEN / "tests", tmp_path / "tests")
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", env=environment, cwd=tmp_path)
    gmc = [sys.executable, "-m", "gmc"]
    small = ["--updates", "2", "--prompts", "2", "--group-size", "2", "--max-tokens", "8"]
    run(*gmc, "train", "--run", "run", "--estimator", "frozen-rule", "--delay", "1", *small, env=environment, cwd=tmp_path)
    assert (tmp_path / "run" / "policies" / "v000002" / "READY").is_file()
    listing = " ".join(run(*gmc, "estimators", env=environment, cwd=tmp_path).split())
    assert "gmc-frozen-rule 0.1.0 requires 'gmc', which on the package index is another project" in listing
    assert "--no-deps" in listing


def test_nothing_of_ours_asks_for_the_other_project() -> None:
    for path in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).values()
        wanted = [*project.get("dependencies", []), *(text for extra in extras for text in extra)]
        assert not [text for text in wanted if text.split("[")[0].split(">")[0].strip() == "gmc"], path
    texts = [*ROOT.glob("gmc/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("plugins/*/README.md")]
    for path in texts:
        text = path.read_text("utf-8")
        for asked in (
            "pip install gmc\n",
            "pip install gmc ",
            "pip install 'gmc[",
            'pip install "gmc[',
            'dependencies = ["gmc"]',
        ):
            assert asked not in text, f"{path}: {asked!r}"
