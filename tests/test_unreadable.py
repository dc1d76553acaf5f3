"""Runs, problems and recipes that may only be read, or not even that: each command works, or names the file in one line."""

import json
from dataclasses import replace

import pytest
import torch  # noqa: F401 (before the fork, once)
from shard_samples import METADATA, make_rollouts
from test_hostile_later import make_run
from unprivileged import command, modes, read_only

from gmc.store.run_directory import RunDirectory
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.process

SHARD = "rollouts/b000003-v000002.parquet"
FEW = ("--n", 1, "--limit", 1, "--max-tokens", 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = make_run(tmp_path_factory.mktemp("unreadable"))
    run_id = RunDirectory.open(path).run_id
    rows = [replace(row, run_id=run_id) for row in make_rollouts(batch=3)]
    (path / "rollouts").mkdir()
    write_shard(path / SHARD, rows, replace(METADATA, run_id=run_id))
    (path / "checkpoints").mkdir()
    (path / "evals").mkdir()
    return path


def contents(folder):
    """What lies in a run, but for the settings, which an evaluation leaves in it before it loads a model."""
    found = [path for path in folder.rglob("*") if path.parent != folder / "settings" and path != folder / "settings"]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def test_a_run_that_may_only_be_read_is_looked_at_and_evaluated_elsewhere(run, tmp_path):
    before = contents(run)
    with modes(read_only(run)):
        for arguments in (("status", run, "--json"), ("samples", run, "--json"), ("runs", run.parent, "--json")):
            code, output, messages = command(*arguments)
            assert (code, messages) == (0, "")
            json.loads(output)
        code, _, messages = command("eval", "--run", run, *FEW, "--out", tmp_path / "out")
        assert code == 0, messages
        assert len(list((tmp_path / "out").glob("*.json"))) == 1
        code, output, messages = command("eval", "--run", run, *FEW)
        assert (code, output, messages.count("\n")) == (1, "", 1)
        assert f"{run}/settings/eval.toml: cannot write: Permission denied. " in messages
    assert contents(run) == before


COMMANDS = {
    "status": lambda run, out: ("status", run),
    "samples": lambda run, out: ("samples", run),
    "eval": lambda run, out: ("eval", "--run", run, *FEW, "--out", out),
    "resume": lambda run, out: ("train", "--run", run, "--resume"),
    "arms": lambda run, out: ("eval", "arms", run),
}
CASES = [
    *((name, "run.toml", "run.toml") for name in COMMANDS if name != "arms"),
    *(("status", part, part) for part in ("rollouts", "policies", "checkpoints", "claims", "followers", "settings")),
    *(("status", part, part) for part in ("metrics.jsonl", "used.jsonl", "followers/someone.json", "settings/train.toml")),
    ("status", "policies/v000004", "policies/v000004/READY"),
    *(("samples", part, part) for part in ("rollouts", SHARD)),
    *(("eval", part, part) for part in ("policies", "policies/v000004/model.safetensors", "policies/v000004/gmc.json")),
    ("eval", "policies/v000004", "policies/v000004/READY"),
    ("resume", "checkpoints", "checkpoints"),
    ("arms", "evals", "evals"),
]


@pytest.mark.parametrize(("name", "part", "named"), CASES, ids=[f"{name}-{part}" for name, part, _ in CASES])
def test_what_may_not_be_read_is_named_in_one_line_and_nothing_is_changed(run, tmp_path, name, part, named):
    before = contents(run)
    with modes({run / part: 0}):
        code, output, messages = command(*COMMANDS[name](run, tmp_path / "out"))
    assert (code, output) == (1, ""), messages
    assert messages.startswith("error: ")
    assert messages.count("\n") == 1
    assert f"{run / named}" in messages
    assert "Permission denied" in messages
    assert contents(run) == before
    assert not (tmp_path / "out").exists()


def test_what_a_command_does_not_need_may_be_unreadable(run):
    with modes({run / "policies": 0, run / "checkpoints": 0, run / "claims": 0, run / "followers": 0}):
        assert command("samples", run, "--json")[0] == 0
    with modes({run: 0}):
        code, output, _ = command("runs", run.parent, "--json")
        assert (code, json.loads(output)["runs"]) == (0, [])


@pytest.mark.parametrize("kind", ["--problems", "--recipe"])
def test_problems_and_recipes_that_may_not_be_read_leave_no_run_behind(tmp_path, kind):
    (tmp_path / "given.toml").write_text("seed = 1\n")
    (tmp_path / "given.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    given = tmp_path / ("given.toml" if kind == "--recipe" else "given.jsonl")
    with modes({given: 0}):
        for name in ("rollout", "train"):
            code, output, messages = command(name, "--run", tmp_path / "run", kind, given)
            assert (code, output, messages) == (1, "", f"error: {given}: Permission denied\n")
    assert not (tmp_path / "run").exists()
