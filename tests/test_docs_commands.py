"""Every command of gmc that a page shows is one that gmc understands: subcommands, options, the values of their types."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from gmc.cli.app import app

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "bash", "sh")
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
INLINE = re.compile(r"`(gmc [a-z][^`]*)`")
ONCE = re.compile(r"(?:^|&& |\bdo |; |\$ |^srun |^\s*torchrun .*-- )(gmc (?:--\w|[a-z]).*)$")
COMMAND = get_command(app)


def shown(page: Path) -> Iterator[str]:
    """Commands in blocks, a line each, without comments and what follows them in the shell."""
    text = page.read_text("utf-8")
    fenced = [block for language, block in FENCED.findall(text) if language in SHELL]
    for block in [*fenced, *INDENTED.findall(FENCED.sub("", text))]:
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s*(?:&&|;|\|)\s*", line.strip()):
                found = ONCE.search(part.removeprefix("do ").strip())
                if found and "…" not in found[1]:
                    yield found[1]


def words_of(line: str) -> list[str]:
    """What the shell would hand over; a variable of a loop stands for a number."""
    words = shlex.split(re.sub(r"\$\w+", "1", line), comments=True)[1:]
    if "&" in words:
        words.remove("&")
    return words


def reached(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the rest of them."""
    command: Any = COMMAND
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def problem_with(line: str) -> str:
    """What gmc would say to a command, "" when it understands."""
    command, words = reached(words_of(line))
    if getattr(command, "commands", {}) and words and not words[0].startswith("-"):
        return f"no command {words[0]}"
    try:
        command.make_context("gmc", list(words))
    except typer.Exit:  # --help and the like end at once
        return ""
    except Exception as error:  # the parser has exceptions of its own in each version of typer
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_shows_only_commands_that_are_understood(page):
    wrong = {line: problem for line in shown(page) if (problem := problem_with(line))}
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_running_text_exist(page):
    wrong = []
    for line in INLINE.findall(page.read_text("utf-8").replace("\n", " ")):
        words = line.split()[1:]
        command, rest = reached(words)
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "--version"}
        wrong += [line for word in rest if word.startswith("--") and len(word) > 2 and word.split("=")[0] not in known]
    assert wrong == []


def test_the_pages_show_commands():
    assert sum(len([*shown(page)]) for page in PAGES) > 100


def test_what_is_not_understood_is_found():
    assert "--estimators" in problem_with("gmc train --estimators gmc")
    assert problem_with("gmc train --updates many")
    assert problem_with("gmc trian")
    assert not problem_with("gmc train --run runs/x --set estimator.epsilon=0.4  # a comment")
