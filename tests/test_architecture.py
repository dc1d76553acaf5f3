"""The map in docs/architecture.md is the contract that is checked, and its walk leads through files that exist."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def contract_layers() -> list[list[str]]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    lines = parser["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [[name.strip() for name in line.split("|")] for line in lines]


@pytest.mark.unit
def test_the_map_shows_the_layers_of_the_contract_in_order() -> None:
    block = PAGE.split("side by side do not import each other.")[1].split("## Words")[0]
    shown = [[name.strip() for name in re.split(r"\s{2,}", line.strip())[0].split("|")] for line in block.strip().splitlines()]
    assert shown == contract_layers()


@pytest.mark.unit
def test_every_package_is_in_the_contract() -> None:
    named = {name for layer in contract_layers() for name in layer}
    found = {path.stem for path in (ROOT / "gmc").glob("*.py")} | {
        path.parent.name for path in (ROOT / "gmc").glob("*/__init__.py")
    }
    assert found - {"__init__", "__main__"} == named


@pytest.mark.unit
def test_the_walk_names_at_most_twelve_files_that_exist_each_once() -> None:
    files = re.findall(r"^\| \d+ \| `([^`]+)`", PAGE, re.MULTILINE)
    assert 8 <= len(files) <= 12
    assert len(set(files)) == len(files)
    assert all((ROOT / file).is_file() for file in files)


@pytest.mark.unit
def test_every_path_in_the_page_exists() -> None:
    for path in re.findall(r"`(gmc/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


@pytest.mark.process
def test_importing_the_library_loads_nothing_heavy() -> None:
    code = "import sys, gmc; sys.exit(any(name in sys.modules for name in ('torch', 'pydantic', 'pandas', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
