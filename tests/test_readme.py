"""The blocks of README.md in their order, as a reader types them in one folder, each made small."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app

pytestmark = pytest.mark.train

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIZE = ["--set", "rollout.prompts=2", "--set", "rollout.group_size=2", "--max-tokens", "8"]
SMALLER = {"rollout": SIZE, "train": [*SIZE, "--updates", "16"], "eval": ["--limit", "2", "--n", "1"]}
NOT_GMC = ("python3", ".", "pip", "pytest")
"""What a reader types besides; tests of the package and `.ci/run` do."""
IN_PYTHON = {"updates=100": "updates=16, prompts=2, group_size=2, max_tokens=8", "base=True": "base=True, limit=2, n=1"}


def type_line(line: str, folder: Path) -> None:
    for part in line.split("&&"):
        program, *words = shlex.split(part, comments=True)
        if program in NOT_GMC:
            continue
        assert program == "gmc", part
        words = [path for word in words for path in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]
        words = ["embedded" if word.startswith("Qwen/") else word for word in words]  # no network here
        more = [] if words[1:2] == ["arms"] else SMALLER.get(words[0], [])
        result = CliRunner().invoke(app, [*words, *more])
        assert result.exit_code == 0, f"{part}\n{result.output}{result.stderr}"


def test_every_block_works_as_written_after_those_before_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problems = "".join(f'{{"question": "Compute ${n}+{n}$.", "answer": "{2 * n}"}}\n' for n in range(8))
    (tmp_path / "my_problems.jsonl").write_text(problems)
    blocks = BLOCK.findall(README.read_text("utf-8"))
    assert [language for language, _ in blocks].count("python") == 1
    for language, text in blocks:
        if language == "python":
            for written, small in IN_PYTHON.items():
                assert written in text
                text = text.replace(written, small)
            exec(compile(text, "README.md", "exec"), {})
            continue
        if "runs/sweep/*" in text:  # "Train each over a few seeds": two that are here stand for them
            for number, run in enumerate(("notebook", "tic")):
                shutil.copytree(tmp_path / "runs" / run, tmp_path / "runs" / "sweep" / str(number))
        for line in filter(str.strip, text.splitlines()):
            type_line(line, tmp_path)
    assert (tmp_path / "sweep.png").stat().st_size > 0
