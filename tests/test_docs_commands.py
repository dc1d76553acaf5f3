"""Every command of gmc that a page shows is one that gmc understands: subcommands, options, the values of their types."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from torch.distributed.run import get_args_parser
from typer.main import get_command

from gmc.cli.app import app
from gmc.config.layers import FIELDS

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "bash", "sh")
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
INLINE = re.compile(r"`(gmc [a-z][^`]*)`")
ONCE = re.compile(r"(?:^|&& |\bdo |; |\$ |^srun |^\s*torchrun .*-- )(gmc (?:--\w|[a-z]).*)$")
COMMAND = get_command(app)
COMMAND_OF_JOB = re.compile(r"^\s*command: (\[.*\])$", re.MULTILINE)
TORCHRUN = re.compile(r"^\s*torchrun (.*)$", re.MULTILINE)


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


def in_jobs(page: Path) -> list[list[str]]:
    """Commands of containers, as a page's YAML has them: lists of words."""
    blocks = [block for language, block in FENCED.findall(page.read_text("utf-8")) if language == "yaml"]
    return [json.loads(words) for block in blocks for words in COMMAND_OF_JOB.findall(block)]


def launched(page: Path) -> list[list[str]]:
    """What pages hand to torchrun: its own options and the program."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in TORCHRUN.findall(text) if "…" not in line]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_other_programs_start_is_understood_too(page):
    wrong = {}
    for words in in_jobs(page):
        assert words[0] == "gmc"
        wrong[shlex.join(words)] = problem_with(shlex.join(words))
    for words in launched(page):
        parser = get_args_parser()
        parser.exit_on_error = False
        told = parser.parse_args(words)
        assert told.module, words
        program = [told.training_script, *told.training_script_args]
        assert program[0] == "gmc", "torchrun reads what stands before -- itself"
        wrong[shlex.join(program)] = problem_with(shlex.join(program))
    assert {line: problem for line, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_that_commands_set_exist(page):
    set_ = [word for line in shown(page) for before, word in pairwise(words_of(line)) if before == "--set"]
    wrong = [text for text in set_ if not known_setting(text.partition("=")[0])]
    assert wrong == []


def known_setting(key: str) -> bool:
    """Whether there is such a setting; those of a rule are the rule's affair."""
    return key in FIELDS or key.startswith("estimator.")


def test_jobs_and_launchers_and_settings_are_found():
    assert in_jobs(ROOT / "docs" / "fleet.md")[0][:3] == ["gmc", "rollout", "--follow"]
    assert len(launched(ROOT / "docs" / "several-gpus.md")) == 3
    assert known_setting("rollout.weight_transfer")
    assert not known_setting("rollout.weight_transfers")


def test_the_pages_show_commands():
    assert sum(len([*shown(page)]) for page in PAGES) > 100


def test_what_is_not_understood_is_found():
    assert "--estimators" in problem_with("gmc train --estimators gmc")
    assert problem_with("gmc train --updates many")
    assert problem_with("gmc trian")
    assert not problem_with("gmc train --run runs/x --set estimator.epsilon=0.4  # a comment")
