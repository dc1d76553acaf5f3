"""What the looking commands show: groups where updates take parts of batches, versions, scales, names that tell runs apart."""

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from shard_samples import METADATA, make_rollouts
from test_cli_runs import invoke, make_run
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.samples_view import versions_text
from gmc.cli.sparkline import curve_text
from gmc.cli.status import screen
from gmc.cli.training_summary import summarize
from gmc.live.listing import find_runs
from gmc.live.overview import overview
from gmc.store.shards.select import Wanted
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.unit


def lines_of(run, path, width="80"):
    """The rows of a run's screen, by their names; rows that wrap are joined."""
    text = CliRunner().invoke(app, ["status", str(path)], env={"COLUMNS": width}).stdout
    return dict(line.split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2)


def log(run, used, *more):
    """Write both logs: the groups of each update, and further metrics of the last one."""
    records = [{"update": update, "reward/mean": 0.5, "delay/mean": 1.0} for update in range(len(used))]
    records[-1] |= dict(more)
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    run.used.write_text("".join(json.dumps({"update": n, "groups": groups}) + "\n" for n, groups in enumerate(used)))


def test_status_counts_groups_where_updates_take_parts_of_batches(tmp_path):
    run = make_run(tmp_path / "run", "delay=inflight:3", "rollout.prompts=2")
    log(run, [[[0, 0], [1, 0]]], ("rollouts/groups_waiting", 4), ("rollouts/groups_in_flight", 3))
    rows = lines_of(run, run.path)
    assert rows["groups"].strip() == "6: 2 trained, 4 waiting, 3 of them unfinished"
    assert "batches" not in rows
    log(run, [[[0, 0], [1, 0]]], ("rollouts/groups_waiting", 2))  # length:C: none is in flight, and batches are used in parts
    assert lines_of(run, run.path)["groups"].strip() == "4: 2 trained, 2 waiting"
    log(run, [[[0, 0], [0, 1]]], ("rollouts/groups_waiting", 2))
    assert "groups" not in lines_of(run, run.path)
    assert lines_of(run, run.path)["batches"].startswith("0: 1 trained")


@pytest.mark.parametrize(("warnings", "rows"), [([], 1), (["most of it falls on version 0"], 0)])
def test_status_says_the_share_of_version_0_once(tmp_path, warnings, rows):
    run = make_run(tmp_path / "run", "delay=256")
    log(run, [[[0, 0], [0, 1]]], ("delay/version_0_rate_share_so_far", 0.9))
    console = Console(width=100, record=True)
    console.print(screen({**overview(run), "warnings": warnings}, unicode=True))
    text = console.export_text()
    assert (text.count("version 0"), text.count("offline ")) == (1, rows)


def test_what_was_set_aside_stands_in_status_and_summary(tmp_path):
    run = make_run(tmp_path / "run", "rollout.prompts=2")
    log(run, [[[0, 0], [0, 1]]], ("rollouts/groups_set_aside_so_far", 5), ("rollouts/set_aside_reward_mean_so_far", 0.8))
    said = "5 groups with equal rewards, sampled and not trained on (mean reward 0.800)"
    assert f"set aside    {said}" in CliRunner().invoke(app, ["status", str(run.path)], env={"COLUMNS": "120"}).stdout
    columns = [[*column.cells] for column in summarize(run).columns]
    assert dict(zip(*columns, strict=True))["set aside"] == said


def test_a_run_that_is_being_started_says_so(tmp_path):
    run = make_run(tmp_path / "run", trained=False)
    with run.lock("gmc at --delay 64"):
        rows = lines_of(run, run.path, "160")
    assert rows["rule"].strip() == "none yet: the run is being started"
    assert rows["trainer"].strip().endswith("(gmc at --delay 64) works on this run")
    assert "once its libraries are loaded" in lines_of(run, run.path, "160")["trainer"]


def test_a_run_is_an_argument_or_an_option_of_every_command_that_looks(tmp_path):
    run = make_run(tmp_path / "run")
    assert invoke("status", run.path).stdout == invoke("status", "--run", run.path).stdout
    for command in ("status", "samples", "export"):
        more = ["--to", tmp_path / "out"] if command == "export" else []
        both = invoke(command, run.path, "--run", tmp_path / "other", *more)
        assert both.exit_code == 2
        assert "give one run" in " ".join(both.stderr.split())


def test_versions_of_a_response_are_shown_and_found(tmp_path):
    row = make_rollouts()[0]
    mixed = replace(row, policy_version=3, response_token_ids=[1, 2, 3], response_mask=None, token_versions=[3, 4, 5])
    assert versions_text(replace(mixed, token_versions=None)) == "v3"
    assert versions_text(replace(mixed, token_versions=[3, 3, 3])) == "v3"
    assert versions_text(mixed) == "v3–v5"
    assert versions_text(replace(mixed, response_mask=[True, True, False])) == "v3–v4"  # an environment's tokens have none
    assert [version for version in range(8) if Wanted(version=version)(mixed)] == [3, 4, 5]


def test_a_curve_has_a_scale():
    assert curve_text([0.25, 0.5], 8) == "▁█ 0.250–0.500"
    assert curve_text([0, 0, 1, 1], 2, digits=1) == "▁█ 0.0–1.0"
    assert curve_text([-1.0, 2.0], 2, digits=0, unicode=False) == "_@ -1 to 2"
    assert curve_text([], 8) == ""


def test_runs_of_a_sweep_stand_under_its_folder_whole_and_apart(tmp_path):
    name = "a-rather-long-name-of-an-arm-s0-0123456789a"
    for end, rate in (("b", 0.001), ("c", 0.002)):
        make_run(tmp_path / "study" / "runs" / f"{name}{end}", f"optimizer.learning_rate={rate}", rewards=[0.25, 0.5])
    make_run(tmp_path / "alone", rewards=[1.0])
    shared = make_run(tmp_path / "study" / "rollouts" / "0f", trained=False)
    write_shard(shared.rollouts / "b000004-v000002.parquet", make_rollouts(), METADATA)
    assert [path.name for path in find_runs(tmp_path)] == ["alone", f"{name}b", f"{name}c"]
    for width in ("80", "120"):
        text = CliRunner().invoke(app, ["runs", str(tmp_path)], env={"COLUMNS": width}).stdout
        lines = [line.rstrip() for line in text.splitlines()]
        assert "study/runs/" in lines
        for end, rate in (("b", 0.001), ("c", 0.002)):
            place = next(place for place, line in enumerate(lines) if f"  {name}{end}" in line)
            assert f"    learning_rate {rate}" in lines[place : place + 3]
            assert any(re.search(r"gmc +64 +2/4 +0\.375 ", line) for line in lines[place : place + 2])
        assert max(map(len, lines)) <= int(width)
    assert "learning_rate" not in CliRunner().invoke(app, ["runs", str(tmp_path / "study" / "runs" / f"{name}b")]).stdout
