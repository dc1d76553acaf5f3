"""What newcomers wrote and met in their first hour: files almost right, options in the other place, texts that mislead."""

import inspect
import io
from pathlib import Path

import pytest
import tomli_w
from pydantic import BaseModel
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from gmc.cli import loading, output
from gmc.cli.app import app
from gmc.cli.lab_sweep import report_lines
from gmc.cli.lab_sweep_view import TableView, duration
from gmc.cli.rollout import _interrupted
from gmc.cli.samples_view import sections
from gmc.cli.sparkline import curve_text
from gmc.delays.registry import list_delays
from gmc.delays.version_0 import warning
from gmc.errors import DataError, UsageError
from gmc.estimators.gmc import GMC
from gmc.estimators.registry import build_estimator
from gmc.evaluation.arms import group_by_arm, read_trained_runs
from gmc.evaluation.request import Request
from gmc.evaluation.run import fields_of
from gmc.lab.report import make_report
from gmc.lab.report_numbers import Over
from gmc.lab.report_tables import PERCENT, cell_text
from gmc.lab.study_file import Grid, make_grid
from gmc.lab.sweep import SweepOutcome
from gmc.lab.sweep_file import parse_sweep
from gmc.lab.sweep_plan import Planner
from gmc.live.listing import differing
from gmc.live.overview import overview
from gmc.problems.load import load_problems
from gmc.problems.readers import read_rows
from gmc.resolving.resolve import resolve_settings
from gmc.store.files import append_jsonl
from gmc.store.run_directory import RunDirectory
from gmc.training.signals import StopRequest
from tests.sweep_files import make_record, make_sweep, sweep_content
from tests.test_evaluation_arms import fake_run
from tests.test_lab_report import write_results

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("missing", "cure"),
    [
        ("arms", r"arms is missing; add a table \[arms.gmc\], one for each rule"),
        ("seeds", r"seeds is missing; .*seeds = \[0, 1, 2\]"),
        ("name", 'name is missing; .*name = "caps"'),
    ],
)
def test_what_a_sweep_file_lacks_is_named_with_its_cure(missing, cure):
    with pytest.raises(UsageError, match=f"^small.toml: {cure}"):
        parse_sweep(sweep_content(**{missing: None}), "small.toml")


@pytest.mark.parametrize("missing", ["seeds", "axes"])
def test_what_a_table_of_a_sweep_lacks_is_named_too(missing):
    select = {key: value for key, value in sweep_content()["select"].items() if key != missing}
    with pytest.raises(UsageError, match=rf"^small.toml: select.{missing} is missing; say .*{missing} = \["):
        parse_sweep(sweep_content(select=select), "small.toml")


def test_no_arms_is_as_none_said():
    with pytest.raises(UsageError, match=r"arms is missing; add a table \[arms.gmc\]"):
        parse_sweep(sweep_content(arms={}, select=None, compare=None), "small.toml")


def test_what_a_grid_lacks_is_named():
    class Needy(Grid):
        rows: int

    with pytest.raises(UsageError, match=r"^here: rows is missing; add a line rows = …$"):
        make_grid({}, Needy, "here")


def test_what_a_rule_lacks_is_named(monkeypatch):
    class Settings(BaseModel):
        width: float

    monkeypatch.setattr(GMC, "Settings", Settings)
    with pytest.raises(UsageError, match=r"^estimator.width: gmc needs it; allowed: .*; add --set estimator.width=…$"):
        build_estimator("gmc")


@pytest.mark.parametrize("words", [("runs", "-q"), ("--quiet", "runs"), ("runs", "--quiet"), ("estimators", "list", "-q")])
def test_quiet_may_stand_behind_the_command(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    try:
        assert CliRunner().invoke(app, [*words]).exit_code == 0
        assert output.level() == output.QUIET
        assert CliRunner().invoke(app, ["-v", *words]).exit_code == 2
        assert "--quiet" not in CliRunner().invoke(app, ["runs", "--help"]).stdout
    finally:
        output.talk(output.NORMAL)


@pytest.mark.parametrize(
    ("name", "header", "said"),
    [
        (
            "a.csv",
            "question;answer",
            r"a.csv, line 1: looks separated by ';', and a .csv file is read by commas; save it separated",
        ),
        ("a.csv", "question\tanswer", r"looks separated by tabs, .*; name it a.tsv"),
        ("a.tsv", "question,answer", r"looks separated by commas, and a .tsv file is read by tabs; name it a.csv"),
    ],
)
def test_another_separator_is_named(tmp_path, name, header, said):
    mark = header.removeprefix("question").removesuffix("answer")
    (tmp_path / name).write_text(f"{header}\n2 + 2, or so{mark}4\n")
    with pytest.raises(DataError, match=said):
        read_rows(tmp_path / name)


def test_the_range_of_a_curve_is_that_of_its_values_at_any_width():
    assert [curve_text([0, 0.5, 0.5, 1], width).split()[1] for width in (1, 2, 4)] == ["0.000–1.000"] * 3


def test_a_column_is_not_said_again_below_its_row():
    settings = {"seed": 0, "train.updates": 40, "rollout.batches": 8, "optimizer.learning_rate": 1e-4}
    other = {**settings, "train.updates": 80, "rollout.batches": 16}
    runs = [
        {"run": f"runs/{number}", "rule": "gmc", "delay": "64", "settings": tree}
        for number, tree in enumerate((settings, other))
    ]
    assert not any(differing(runs).values())


def test_what_only_looks_on_makes_no_arm(tmp_path):
    paths = [fake_run(tmp_path / "a", "gmc", "64", 0, [0.5] * 3), fake_run(tmp_path / "b", "gmc", "64", 1, [0.6] * 3)]
    for path, batches in zip(paths, (4, 9), strict=True):
        with open(path / "settings" / "train.toml", "a") as file:
            file.write(f"[settings.rollout]\nbatches = {batches}\n[settings.eval]\nlimit = {batches}\n")
    trained, untrained = read_trained_runs(paths)
    assert [[run.seed for run in arm.runs] for arm in group_by_arm(trained)] == [[0, 1]]
    assert untrained == []


def test_a_run_without_updates_is_left_out_of_arms_but_not_all(tmp_path):
    paths = [fake_run(tmp_path / "a", "gmc", "64", 0, [0.5] * 3), fake_run(tmp_path / "b", "gmc", "64", 1, [])]
    trained, untrained = read_trained_runs(paths)
    assert ([run.path for run in trained], untrained) == (paths[:1], paths[1:])
    with pytest.raises(UsageError, match="no update was made here"):
        read_trained_runs(paths[1:])


def test_ctrl_c_is_called_what_was_pressed(tmp_path):
    stop = StopRequest()
    assert (stop.by, bool(stop)) == (None, False)
    stop.signal_name = "SIGINT"
    assert stop.by == "Ctrl-C"
    stop.signal_name = "SIGTERM"
    assert stop.by == "SIGTERM"
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "b000000-v000000.parquet").write_bytes(b"")
    said = _interrupted(tmp_path, 8)
    assert said == f"stopped by Ctrl-C; kept 1 of 8 batches. Go on with: gmc rollout --run {tmp_path} --resume"


def test_a_sweep_names_a_report_only_where_there_is_one():
    nothing = SweepOutcome(Path("r.jsonl"), finished=0, failed=0, missing=3, without_choice=True)
    assert report_lines(nothing, "Ctrl-C") == ["stopped by Ctrl-C with 3 runs to go; the same command goes on"]
    one = SweepOutcome(Path("r.jsonl"), finished=1, failed=0, missing=0, without_choice=False)
    assert report_lines(one, None) == ["1 run is in r.jsonl; next: gmc lab report r.jsonl"]


def test_nothing_recorded_makes_no_report(tmp_path):
    path = write_results(tmp_path / "r.jsonl", {"gmc": []})
    with pytest.raises(UsageError, match="no run is recorded there yet"):
        make_report([path])


@pytest.mark.parametrize(("seconds", "said"), [(8.4, "8 s"), (300, "5 min"), (9000, "2.5 h")])
def test_a_duration_is_said_in_what_reads_best(seconds, said):
    assert duration(seconds) == said


def test_a_table_without_running_runs_is_a_line():
    assert str(TableView(1)._table()) == " 0/0"


def test_an_evaluation_on_the_problems_of_training_takes_their_fields(tmp_path):
    path = tmp_path / "mine.jsonl"
    settings = resolve_settings(
        flags={"problems.source": str(path), "problems.question_field": "ask", "problems.answer_field": "gold"}
    )
    assert fields_of(Request(problems=str(path)), settings) == ("ask", "gold")
    assert fields_of(Request(problems=str(path), question_field="other"), settings) == ("other", "gold")
    assert fields_of(Request(problems=str(tmp_path / "held.jsonl")), settings) == (None, None)
    assert fields_of(Request(problems=str(path), trained=False), settings) == (None, None)


def test_one_bad_row_of_many_is_to_be_fixed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"question": "1+1", "answer": "2"}\n{"questoin": "1+2", "answer": "3"}\n{"question": "1+3", "answer": "4"}\n'
    )
    with pytest.raises(
        DataError, match=r"a.jsonl, line 2: no question field .*; 2 of 3 rows have it: fix line 2, or take it out$"
    ):
        load_problems(str(path))
    path.write_text('{"q": "1+1", "answer": "2"}\n{"q": "1+2", "answer": "3"}\n')
    with pytest.raises(DataError, match="name the right one with --question-field"):
        load_problems(str(path))


def test_pages_of_delays_name_no_classes():
    for plugin in list_delays():
        assert "Delay`" not in inspect.cleandoc(plugin.cls.__doc__), plugin.name
    assert "The clock: a batch is launched every update" in " ".join(CliRunner().invoke(app, ["delays", "list"]).stdout.split())


def test_equal_runs_have_a_dash_for_their_interval():
    assert cell_text(Over(0.5, None, 4), PERCENT) == "50.0 ± –"
    assert cell_text(Over(0.5, None, 1), PERCENT) == "50.0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "--updates", "1.5"), "invalid value for '--updates': give a whole number"),
        (("train", "--set", "train.updates=1.5", "--dry-run"), "train.updates = 1.5: give a whole number"),
        (("train", "--set", "train.seed=1", "--dry-run"), "unknown setting train.seed; did you mean seed?"),
        (
            ("train", "--environment", "tools(functions=gone.py)", "--dry-run"),
            "gone.py: No such file or directory; functions would be defined there",
        ),
        (("train", "--reward", "gone.py:f", "--dry-run"), "gone.py: No such file or directory; f would be defined there"),
    ],
)
def test_a_slip_is_answered_in_plain_words(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_kind_of_samples_is_guessed():
    with pytest.raises(UsageError, match=r"--show wrost: there are .*; did you mean worst\?"):
        sections([], ["wrost"], None, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rollout", "--problems", "a.csv"), "a.csv, line 1: looks separated by ';'"),
        (("rollout", "--problems", "b.jsonl"), "b.jsonl, line 1: no question field"),
        (("train", "--delay", "geometric:1:2"), "--delay geometric:1:2: it takes 1 value, not 2"),
        (("lab", "sweep", "s.toml"), "s.toml: arms is missing"),
    ],
)
def test_files_and_delays_are_looked_at_before_settings_are_resolved(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("question;answer\n1+1;2\n")
    (tmp_path / "b.jsonl").write_text('{"text": "1+1"}\n')
    (tmp_path / "s.toml").write_text(tomli_w.dumps(sweep_content(arms=None)))
    for late in ("gmc.resolving.resolve.resolve", "gmc.lab.sweep.open_study"):
        monkeypatch.setattr(late, lambda *arguments, **keywords: pytest.fail("too late"))
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert not (tmp_path / "runs").exists()


def test_off_a_terminal_no_line_ends_in_blanks():
    out = io.StringIO()
    table = Table("name", "what", box=None)
    table.add_row("a", "b c ")
    table.add_row("longer", "")
    console = output.PlainConsole(file=out, width=40, force_terminal=False, color_system=None)
    console.print(table)
    console.print(Text("x  y  "))
    lines = out.getvalue().splitlines()
    assert [line.split() for line in lines] == [["name", "what"], ["a", "b", "c"], ["longer"], ["x", "y"]]
    assert all(line == line.rstrip() for line in lines)
    assert lines[1].startswith(" a ")


def test_a_missing_library_is_not_said_to_be_loading(capsys, monkeypatch):
    announcer = loading._Announcer()
    announcer._left = {"vllm_that_is_not_there", "json"}
    said = []
    monkeypatch.setattr(loading, "write_line", said.append)
    for name in ("vllm_that_is_not_there", "json", "json"):
        assert announcer.find_spec(name, None) is None
    assert said == ["loading json …"]


def test_a_run_whose_updates_are_made_has_ended(tmp_path):
    run = RunDirectory.open(fake_run(tmp_path / "a", "gmc", "64", 0, [0.5] * 2, updates=2))
    for update in range(2):
        assert overview(run)["ended"] is False
        append_jsonl(run.used, {"update": update, "groups": [[update, 0]]})
    assert overview(run)["ended"] is True


def test_a_resumed_sweep_counts_on(monkeypatch):
    runs = Planner(make_sweep(select=None), "small.toml").verdict({})
    view, now = TableView(1), [0.0]
    monkeypatch.setattr("gmc.cli.lab_sweep_view.time.monotonic", lambda: now[0])
    view.stage("verdict", runs, runs[-2:])
    assert view._sum() == f"verdict {len(runs) - 2}/{len(runs)}"
    now[0] = 30.0
    view.recorded(make_record("grpo", 0, 0.5, run=runs[-2].run))
    assert view._sum() == f"verdict {len(runs) - 1}/{len(runs)}, ETA 30 s"  # one of the two to be made took 30 s


def test_a_live_run_that_is_mostly_offline_is_told_its_own_cure():
    assert "plan more --updates: followers begin with version 0" in warning(0.9, "live", 200)
    assert "--delay ramp:64" in warning(0.9, "64", 200)


@pytest.mark.parametrize("group", ["rewards", "environments", "delays"])
def test_lists_of_plugins_are_not_cut_at_eighty_columns(group):
    text = CliRunner().invoke(app, [group], env={"COLUMNS": "80"}).stdout
    assert text
    assert not any(line.rstrip().endswith("…") for line in text.splitlines())
