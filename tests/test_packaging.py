"""Wheels of gmc and of its plug-ins install side by side without an index, and rule packages written for 0.1 go on working."""

import json
import os
import re
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


def first_json(output: str) -> dict[str, list[dict[str, str]]]:
    """The object on stdout; messages on stderr come behind it."""
    return json.JSONDecoder().raw_decode(output)[0]


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
    count = "from gmc.config.recipes import recipes_directory as d; print(len(list(d().glob('*.toml'))))"
    recipes = run(python, "-c", count, cwd=tmp_path)
    assert int(recipes) == len(list((ROOT / "recipes").glob("*.toml")))
    rules = first_json(run(environment / "bin" / "gmc", "estimators", "--json", cwd=tmp_path))["estimators"]
    owners = {rule["name"]: rule["distribution"] for rule in rules}
    assert owners["cispo"].startswith("gmc-cispo ")
    assert owners["gmc"].startswith("gmc-rl ")
    delays = first_json(run(environment / "bin" / "gmc", "delays", "--json", cwd=tmp_path))["delays"]
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


NAME_ENDS = r"(?![\w.-])"
ASKS_FOR_IT = re.compile(
    rf"pip install[^\n&;]*?[ \t'\"]gmc{NAME_ENDS}|\bgmc\[[a-z]|dependencies\s*=\s*\[[^\]]*[\"']gmc{NAME_ENDS}", re.IGNORECASE
)
"""A command, an extra or a requirement that names the distribution `gmc`."""


def test_nothing_of_ours_asks_for_the_other_project() -> None:
    for path in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).values()
        wanted = [*project.get("dependencies", []), *(text for extra in extras for text in extra)]
        assert not [text for text in wanted if re.match(rf"gmc{NAME_ENDS}", text)], path
    folders = [ROOT / name for name in ("gmc", "docs", "plugins", "recipes", "benchmarks", ".github")]
    found = [*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*"))]
    texts = (path for path in found if path.suffix in (".md", ".py", ".toml", ".yml"))
    for path in texts:
        asked = ASKS_FOR_IT.search(path.read_text("utf-8"))
        assert asked is None, f"{path}: {asked[0]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "pip install gmc",
        "`pip install gmc`",
        "pip install -U gmc==0.1",
        "pip install 'gmc[vllm]'",
        "Install `gmc[vllm]`",
        'dependencies = ["x", "gmc>=1"]',
    ],
)
def test_what_asks_for_the_other_project_is_noticed(text: str) -> None:
    assert ASKS_FOR_IT.search(text)
    assert not ASKS_FOR_IT.search(text.replace("gmc", "gmc-rl"))
