"""Lines for people: broken between words on a terminal and whole elsewhere, and the state of work without a known end."""

import io
import itertools

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from gmc.cli import progress
from gmc.cli.grade import grade
from gmc.cli.output import PlainConsole, in_words
from gmc.cli.progress import StatusLine, status_line

pytestmark = pytest.mark.unit

LINE = "stopped by Ctrl-C after 3 updates; go on with: gmc train --run runs/a-rather-long-name --resume"


@pytest.mark.parametrize("width", [20, 39, 40, 41, 80, 200])
def test_a_line_is_broken_between_words(width):
    lines = in_words(Text(LINE), width).plain.split("\n")
    assert " ".join(lines) == LINE
    assert all(len(line) <= width or " " not in line for line in lines)
    for line, after in itertools.pairwise(lines):
        assert len(f"{line} {after.split()[0]}") > width  # no break too early


def test_a_word_longer_than_a_line_stays_whole_and_wide_letters_count_twice():
    assert in_words(Text("in /a/path/of/some/length: damaged"), 12, 2).plain == "in\n  /a/path/of/some/length:\n  damaged"
    assert in_words(Text("日本 日本 日本"), 10).plain == "日本 日本\n日本"


def test_a_line_stays_one_off_a_terminal_and_keeps_its_style_on_one():
    plain, styled = io.StringIO(), io.StringIO()
    PlainConsole(file=plain, width=30, highlight=False).say(LINE)
    assert plain.getvalue() == f"{LINE}\n"
    console = PlainConsole(file=styled, width=30, force_terminal=True, highlight=False, color_system="standard")
    console.say(Text.assemble(("error:", "red"), f" {LINE} [bold]"))
    assert styled.getvalue().startswith("\x1b[31merror:\x1b[0m stopped by Ctrl-C after\n3 updates;")
    assert "[bold]" in styled.getvalue()  # no markup of a stranger's is obeyed


def test_rows_keep_their_columns():
    written = io.StringIO()
    PlainConsole(file=written, width=24, force_terminal=True, highlight=False).say_rows(
        {"a": "x", "prompt": "one two three\n\nfour"}
    )
    assert [line.rstrip() for line in written.getvalue().splitlines()] == [
        "a       x",
        "prompt  one two three",
        "",
        "        four",
    ]


def test_the_prompt_of_grade_stands_in_its_column():
    app = typer.Typer()
    app.command("grade")(grade)
    lines = CliRunner().invoke(app, ["--prompt", "What is 2 + 3?"]).stdout.splitlines()
    assert lines[1:3] == ["prompt            Problem: What is 2 + 3?", "                  Solution:"]


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_state_is_a_log_line_at_a_bounded_rate(clock, monkeypatch):
    lines = []
    monkeypatch.setattr(progress, "write_line", lambda line: lines.append((clock[0], line)))
    show = StatusLine("follow", None)
    show("", "loading the model")
    for second in range(1, 31):
        clock[0] = 100.0 + second
        show(f"{second} batches", f"generating batch {second}")
    while clock[0] < 190:
        clock[0] += 1
        show("30 batches", "paused")
    assert [at for at, _ in lines] == [100, 110, 120, 130, 140]  # paused since 131, and still: the next line is due at 200
    assert lines[0][1] == "follow: loading the model"
    assert lines[1][1] == "follow: generating batch 10  10 batches"
    assert lines[4][1] == "follow: paused (9 s)  30 batches"


def test_a_state_is_drawn_in_place_on_a_terminal(clock, monkeypatch):
    for width in (80, 140):
        written = io.StringIO()
        console = PlainConsole(file=written, width=width, force_terminal=True, highlight=False, color_system=None)
        monkeypatch.setattr(progress, "stderr", console)
        with status_line("follow") as show:
            show("12 batches  704 responses  123 responses/s  version 11", "paused: 4 batches are ahead of training")
            clock[0] += 7
            show("12 batches  704 responses  123 responses/s  version 11", "paused: 4 batches are ahead of training")
        drawn = written.getvalue()
        last = [line for line in drawn.splitlines() if "704" in line][-1]
        assert "12 batches  704 responses  123 responses/s  version 11" in last
        assert "paused: 4 batches are ahead of training (7 s)" in drawn
        assert ("paused" in last) == (width == 140)
