"""Every kind of file says its format: a newer one is refused by number, and one of gmc 0.1, which has none, is read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tomli_w
import torch
from typer.testing import CliRunner

import gmc
from gmc.cli.app import app
from gmc.delays.schedule import read_schedule, write_schedule
from gmc.errors import DataError
from gmc.evaluation.results import read_result
from gmc.live.heartbeats import HeartbeatWriter, read_heartbeat, read_heartbeats
from gmc.store.checkpoints import load_checkpoint, load_newest, save_checkpoint
from gmc.store.formats import FORMAT, read_format, stamp
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory

OLD = Path(__file__).parent / "data" / "run-0.1"
"""A run of gmc 0.1 on a tiny model: two updates, an evaluation, its schedule, and the heartbeat of a follower."""

(OLD_RESULT,) = (OLD / "evals").glob("*.json")
CHECKPOINT = OLD / "checkpoints" / "u000002"
HEARTBEAT = OLD / "followers" / "host-1-abcdef.json"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_schedule(path: Path, **changes: Any) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"gmc": json.dumps({**stamp(), **changes})}), path)


def change_run(path: Path, **changes: Any) -> None:
    path.write_text(path.read_text() + tomli_w.dumps(changes))


KINDS = {
    "run.toml": ("run.toml", change_run, lambda run: RunDirectory.open(run)),
    "checkpoint": ("checkpoints/u000002/state.json", change_json, lambda run: load_newest(run / "checkpoints")),
    "heartbeat": (f"followers/{HEARTBEAT.name}", change_json, lambda run: read_heartbeats(run / "followers")),
    "schedule": ("schedule.parquet", change_schedule, lambda run: read_schedule(run / "schedule.parquet")),
    "result": (f"evals/{OLD_RESULT.name}", change_json, lambda run: read_result(run / "evals" / OLD_RESULT.name)),
}


@pytest.mark.unit
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_format_is_refused_by_number(old: Path, kind: str) -> None:
    name, change, read = KINDS[kind]
    assert read(old)
    change(old / name, format=FORMAT + 1)
    with pytest.raises(DataError) as caught:
        read(old)
    assert str(caught.value).startswith(f"{old / name}: written by gmc ")
    assert f"(format 3), this is gmc {gmc.__version__} (format 2); use a gmc as new" in str(caught.value)


@pytest.mark.unit
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["two", 0, True])
def test_what_is_no_format_is_damage(old: Path, kind: str, damage: Any) -> None:
    name, change, read = KINDS[kind]
    change(old / name, format=damage)
    with pytest.raises(DataError, match=f"its format is {damage!r}, not a whole number"):
        read(old)


@pytest.mark.unit
def test_the_version_that_wrote_it_is_named_where_it_is_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x: written by gmc 0\.4\.0 \(format 3\)"):
        read_format(tmp_path / "x", {"format": 3, "gmc_version": "0.4.0"})
    with pytest.raises(DataError, match=r"x: written by gmc of an unknown version \(format 3\)"):
        read_format(tmp_path / "x", {"format": 3})


@pytest.mark.unit
def test_what_is_written_says_format_and_version(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", model="m", seed=0)
    assert "format = 2\n" in (run.path / "run.toml").read_text()
    empty: dict[str, torch.Tensor] = {}
    state = save_checkpoint(
        run.checkpoints, 1, weights=empty, optimizer=empty, estimator=empty, extra={"run_id": "r", "source": {}}, keep=1
    )
    rows, _ = read_schedule(OLD / "schedule.parquet")
    write_schedule(run.path / "schedule.parquet", rows)
    with HeartbeatWriter(run.followers, "me", 60.0).beating():
        beat = json.loads((run.followers / "me.json").read_text())
    found = [
        beat,
        json.loads((state / "state.json").read_text()),
        json.loads(pq.read_schema(run.path / "schedule.parquet").metadata[b"gmc"]),
    ]
    assert [{name: record[name] for name in stamp()} for record in found] == [stamp()] * 3
    assert read_schedule(run.path / "schedule.parquet")[0] == rows
    assert read_heartbeat(run.followers / "me.json").state == "stopped"


@pytest.mark.unit
def test_a_run_of_0_1_is_read(old: Path) -> None:
    run = RunDirectory.open(old)
    assert (run.record.gmc_version, run.record.format, run.record.model) == ("0.1.0", 1, "tiny")
    assert load_checkpoint(CHECKPOINT).extra["planned_updates"] == 2
    assert read_heartbeat(HEARTBEAT).version == 1
    assert [row.update for row in read_schedule(old / "schedule.parquet")[0]] == [0, 0, 1, 1]
    assert read_result(OLD_RESULT).estimates()["avg@2"].problems == 3
    assert len(read_metrics(run.metrics)) == 2
    assert len(gmc.read_rollouts(gmc.Run(old))) == 12
    status = json.loads(CliRunner().invoke(app, ["status", "--run", str(old), "--json"]).stdout)
    assert (status["updates"], status["policy_version"], status["delays"]["max"]) == (2, 2, 0)


@pytest.mark.unit
def test_a_run_of_0_1_keeps_its_format_when_its_record_is_written_again(old: Path) -> None:
    text = (old / "run.toml").read_text()
    weights = RunDirectory.open(old).record.weights_hash
    (old / "run.toml").write_text(text.replace(weights, ""))
    RunDirectory.open(old).bind_weights(weights)
    assert RunDirectory.open(old).record.format == 1


@pytest.mark.train
def test_a_policy_of_0_1_is_evaluated_and_its_run_is_not_resumed(old: Path) -> None:
    arguments = ["eval", "--run", str(old), "--limit", "3", "--n", "2", "--max-tokens", "8", "--no-greedy", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert len(list((old / "evals").glob("*.json"))) == 2
    refused = CliRunner().invoke(app, ["train", "--run", str(old), "--model", "tiny", "--resume"])
    assert refused.exit_code == 2
    assert "gmc 0.1 saved it" in refused.output
    assert "\n" not in refused.output.strip()
