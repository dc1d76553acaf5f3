"""Ranks that hold a part of the model each train on what a follower makes, by the commands that docs/several-gpus.md names."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from kill_moments import DIGIT_REWARD, require_movement
from sharding_runs import SHARDED, command, environment

from gmc.live.overview import overview
from gmc.models import load_model, weights_hash
from gmc.parameters.whole import Whole
from gmc.store.checkpoints import load_checkpoint
from gmc.store.files import read_jsonl
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard

pytestmark = [pytest.mark.process, pytest.mark.slow]

UPDATES = 4
TRAIN = ["gmc", "train", "--live", "--updates", str(UPDATES), "--prompts", "4", "--group-size", "4", "--max-tokens", "12"]
TRAIN += ["--learning-rate", "1e-3", "--set", SHARDED, "--set", DIGIT_REWARD, "--set", "live.max_ahead=1"]
FOLLOW = [sys.executable, "-c", "from gmc.cli.app import main; main()", "rollout", "--follow"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def _start(program: list[str]) -> subprocess.Popen[bytes]:
        with open(tmp_path / f"process{len(started)}.log", "wb") as log:
            arguments = [*program, "--run", str(tmp_path / "run")]
            started.append(subprocess.Popen(arguments, stdout=log, stderr=log, env=environment()))
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.wait()
    for log in sorted(tmp_path.glob("process*.log")):
        print(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}")


def require_followed(run: RunDirectory) -> None:
    """One follower made every batch that was used, with policies that the ranks published on the way; none is lost."""
    used = [record["groups"] for record in read_jsonl(run.used)]
    shards = {
        rollout.batch: rollout.policy_version
        for path in run.rollouts.glob("*.parquet")
        for rollout in read_shard(path).rollouts
    }
    assert [[(batch, group) for batch, group in groups] for groups in used] == [
        [(batch, group) for group in range(4)] for batch in range(UPDATES)
    ]
    assert all(shards[batch] <= batch for batch in range(UPDATES))
    assert shards[UPDATES - 1] >= 1  # it waited for the update before it, and took a newer policy
    found = overview(run)
    (follower,) = found["followers"]
    assert follower["batches"] == found["batches_made"] == len(shards)
    assert found["ended"]
    assert found["errors"] == []


def test_parts_on_two_ranks_train_on_what_a_follower_makes(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    trainer, follower = start(command(2, "-m", "--", *TRAIN)), start(FOLLOW)
    assert trainer.wait(timeout=500) == 0
    assert follower.wait(timeout=100) == 0
    run = RunDirectory.open(tmp_path / "run")
    require_movement(run.path, updates=3, last=UPDATES - 2)
    require_followed(run)
    # What followers load last is what the ranks hold: each has written its own rows, by another way, into the checkpoint.
    policy, start_weights = run.policies / f"v{UPDATES:06d}", load_model("embedded").weights()
    published = load_model(policy)
    saved = load_checkpoint(run.checkpoints / f"u{UPDATES:06d}").shared
    assert saved is not None
    held = Whole(load_model("embedded")).read(saved, lambda key, shape: None)
    assert json.loads((policy / "gmc.json").read_text())["weights_hash"] == weights_hash(published.weights())
    for name, tensor in published.weights().items():
        assert torch.equal(tensor, held[f"weights/{name}"]), name
    assert any(not torch.equal(tensor, start_weights[name]) for name, tensor in published.weights().items())
