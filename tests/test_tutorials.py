"""Every block of docs/tutorials is executed, one after the other, as a reader would.

A block with a title is a file, or commands that need more than this machine, which are checked for being understood.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gmc.cli.app import app

pytestmark = pytest.mark.process

PAGES = sorted((Path(__file__).parent.parent / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
WAIT_SECONDS = 240


class Reader:
    """Types what a page says, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.background: list[subprocess.Popen[bytes]] = []
        self.ran: list[str] = []

    def follow(self, page: Path) -> None:
        for language, title, text in BLOCK.findall(page.read_text("utf-8")):
            if language == "bash":
                for line in commands(text):
                    if title:
                        require_understood(line)
                    else:
                        self.type(line)
            else:
                target = self.folder / title
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, "utf-8")
        for process in self.background:
            assert process.wait(WAIT_SECONDS) == 0

    def type(self, line: str) -> None:
        program, *words = shlex.split(line, comments=True)
        self.ran.append(line)
        if words[-1] == "&":
            self.background.append(subprocess.Popen([sys.executable, "-m", program, *words[:-1]], cwd=self.folder))
        elif program == "gmc":
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, f"{line}\n{result.output}{result.stderr}"
        elif line == "pip install pytest":
            pass  # this runs under it
        elif program == "pip":
            self.install(self.folder / words[-1])
        elif words[:2] == ["-m", "pytest"]:
            run_tests(self.folder / words[-1])
        else:
            raise AssertionError(f"a reader cannot type {line}")

    def install(self, package: Path) -> None:
        """What `pip install -e` leaves: the package on the path, and its entry points."""
        project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
        info = self.folder / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        (info / "entry_points.txt").write_text("".join(map(_section, project["entry-points"].items())))
        self.monkeypatch.syspath_prepend(package)
        self.monkeypatch.syspath_prepend(info.parent)


def _section(group: tuple[str, dict[str, str]]) -> str:
    name, points = group
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())


def commands(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def run_tests(package: Path) -> None:
    """Call every test of a package."""
    ran = 0
    for path in sorted((package / "tests").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, test in vars(module).items():
            if name.startswith("test_"):
                test()
                ran += 1
    assert ran


def require_understood(line: str) -> None:
    """Parse a command of gmc, behind torchrun or not, without running it: an unknown option raises."""
    words = shlex.split(line, comments=True)
    if words[0] == "torchrun":
        words = words[words.index("--") + 1 :]
    assert words[0] == "gmc", line
    command = get_command(app)
    words = words[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("gmc", list(words))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    made = Reader(tmp_path, monkeypatch)
    yield made
    for process in made.background:
        if process.poll() is None:
            process.kill()
    for name in set(sys.modules) - known:
        if name.startswith("gmc_my_rule"):
            del sys.modules[name]
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_block_of_a_tutorial_works(page: Path, reader: Reader) -> None:
    reader.follow(page)
    assert reader.ran


def test_there_is_a_tutorial_for_each_thing_one_wants() -> None:
    wanted = {"own-data", "own-reward", "own-tools", "own-rule", "sweep-and-report", "live-mode", "gpus"}
    assert {page.stem for page in PAGES} == wanted
