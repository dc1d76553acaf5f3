"""What newcomers wrote and met in their first hour: files almost right, options in the other place, texts that mislead."""

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from gmc.cli import output
from gmc.cli.app import app
from gmc.cli.sparkline import curve_text
from gmc.errors import DataError, UsageError
from gmc.estimators.gmc import GMC
from gmc.estimators.registry import build_estimator
from gmc.evaluation.arms import group_by_arm, read_trained_runs
from gmc.lab.study_file import Grid, make_grid
from gmc.lab.sweep_file import parse_sweep
from gmc.live.listing import differing
from gmc.problems.readers import read_rows
from tests.sweep_files import sweep_content
from tests.test_evaluation_arms import fake_run

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
