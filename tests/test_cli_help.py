"""What a person finds in the help: panels, examples that are understood, completion, quiet and loud."""

import re
import shlex
from collections import Counter
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from gmc.cli import completion, output
from gmc.cli.app import app
from gmc.cli.help import tidy_help
from gmc.cli.panels import BELOW, EXAMPLES, PANELS

pytestmark = pytest.mark.unit

ROOT = get_command(app)


def run(*arguments, **keywords):
    return CliRunner().invoke(app, [*arguments], **keywords)


def test_every_command_stands_in_one_panel_the_loop_first():
    assert sorted(name for names in PANELS.values() for name in names) == sorted(ROOT.commands)
    text = run("--help").stdout
    places = [text.index(f"─ {panel} ") for panel in PANELS]
    assert places == sorted(places)
    listed = [text.index(f"│ {name} ") for names in PANELS.values() for name in names]
    assert listed == sorted(listed)


def names_of(command, before=()):
    """Every command as it is typed, those of groups included."""
    for name, below in getattr(command, "commands", {}).items():
        yield " ".join((*before, name))
        yield from names_of(below, (*before, name))


NAMES = sorted(names_of(ROOT))


def test_every_command_has_two_examples_that_are_understood():
    assert EXAMPLES.keys() == ROOT.commands.keys()
    assert sorted({**EXAMPLES, **BELOW}) == NAMES
    for name, examples in {**EXAMPLES, **BELOW}.items():
        assert len(set(examples)) == 2
        for example in examples:
            program, *words = shlex.split(example)
            assert program == "gmc"
            assert words[: len(name.split())] == name.split()
            if "--help" in words:
                assert run(*words).exit_code == 0
                continue
            command = ROOT
            while words and words[0] in getattr(command, "commands", {}):
                command, words = command.commands[words[0]], words[1:]
            command.make_context(name, list(words))  # raises for an unknown option or a missing argument


def help_of(name, width):
    return run(*name.split(), "--help", env={"COLUMNS": str(width)}).stdout


@pytest.mark.parametrize("name", ["", *NAMES])
def test_narrow_and_wide_terminals_show_the_same_words(name):
    narrow, wide = help_of(name, 80), help_of(name, 200)
    assert Counter(re.findall(r"[^\s─│╭╮╰╯]+", narrow)) == Counter(re.findall(r"[^\s─│╭╮╰╯]+", wide))
    assert max(map(len, narrow.splitlines())) <= 80
    assert "[default" not in wide
    for said in re.findall(r"\(default: [^)]*", wide):
        assert "((" not in said


def test_help_is_of_one_style():
    app = typer.Typer()

    @app.command()
    def made(
        folder: Annotated[str, typer.Argument()],
        count: Annotated[int, typer.Option("--count", help="How many.")] = 3,
        rate: Annotated[float | None, typer.Option("--rate", help="Rate.", show_default="half")] = None,
        flag: Annotated[bool, typer.Option("--flag", help="Flag.")] = False,
        name: Annotated[str, typer.Option("--name", help="Name.")] = "",
    ) -> None:
        """One line.

        Broken where
        the source breaks.
        """

    command = get_command(app)
    tidy_help(command)
    told = {parameter.name: parameter.help for parameter in command.params}
    assert command.help == "One line.\n\nBroken where the source breaks."
    assert command.params[0].metavar == "FOLDER"
    assert (told["count"], told["rate"]) == ("How many. (default: 3)", "Rate. (default: half)")
    assert (told["flag"], told["name"]) == ("Flag.", "Name.")


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_stand_in_the_help(name):
    text = " ".join(help_of(name, 200).split())
    assert "[]" not in text  # what rich takes for its own markup vanishes
    for example in {**EXAMPLES, **BELOW}[name]:
        assert example in text.replace("\\\\", "\\")
        assert len(f" $ {example} ") <= 80  # in one piece, to be copied


def test_completion_knows_what_is_installed(tmp_path, monkeypatch):
    assert ("gmc", pytest.importorskip("gmc.estimators.gmc").GMC.summary) in completion.complete_rules("g")
    assert all(name.startswith("ra") for name, _ in completion.complete_delays("ra"))
    assert "ramp" in dict(completion.complete_delays(""))
    assert [*dict(completion.complete_engines(""))] == ["transformers", "vllm", "vllm-server"]
    assert "lab-delay-sweep" in dict(completion.complete_recipes("lab"))
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "runs/b", "elsewhere/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.toml").write_text("")
    assert [*dict(completion.complete_runs(""))] == ["runs/a", "runs/b"]
    assert [*dict(completion.complete_runs("elsewhere/"))] == ["elsewhere/c"]
    assert [*dict(completion.complete_runs("runs/b"))] == ["runs/b"]


def test_quiet_keeps_errors_and_drops_the_rest(tmp_path):
    simulate = ("simulate-delay", "--delay", "geometric:3", "--lengths", "lognormal:9:0.5", "--updates", "20")
    simulate = (*simulate, "--schedule", str(tmp_path / "schedule.jsonl"))
    try:
        assert "follows it" in run(*simulate).stderr
        quiet = run("--quiet", *simulate)
        assert quiet.exit_code == 0
        assert "train on it with" not in quiet.stderr
        refused = run("--quiet", "train", "--estimator", "nothing", "--run", str(tmp_path / "run"))
        assert (refused.exit_code, refused.stderr.partition(" ")[0]) == (2, "error:")
        assert run("--quiet", "--verbose", "runs").exit_code == 2
    finally:
        output.talk(output.NORMAL)


def test_levels_decide_what_is_written(capsys):
    try:
        for level, lines in ((output.NORMAL, 1), (output.QUIET, 0), (output.VERBOSE, 1)):
            output.talk(level)
            output.write_line("a line")
            assert len(capsys.readouterr().err.splitlines()) == lines
    finally:
        output.talk(output.NORMAL)


def test_off_a_terminal_a_line_has_its_time(capsys):
    output.write_line("a line")
    time, _, rest = capsys.readouterr().err.partition(" ")
    hours, minutes, seconds = map(int, time.split(":"))
    assert rest == "a line\n"
    assert hours < 24
    assert minutes < 60
    assert seconds < 61
