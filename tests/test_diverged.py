"""A training that diverges ends in one line that says so; what it made of the weights is neither saved nor published."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shard_samples import METADATA, make_rollouts
from training_runs import small_settings, train_run

from gmc.errors import DataError
from gmc.parameters.base import all_finite
from gmc.store.checkpoints import load_newest, save_checkpoint
from gmc.store.policies import list_policies
from gmc.store.shards.writer import write_shard
from gmc.training.update import NonFiniteError

TINY = ["rollout.prompts=3", "rollout.max_tokens=36", "delay=0", "train.checkpoint_every=1", "train.publish_every=1"]


@pytest.mark.unit
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_value_that_is_no_number_is_found_wherever_it_is(value: float, place: int) -> None:
    tensors = [torch.full((3,), 3e38), torch.zeros(0, 4), torch.ones(2, 2, dtype=torch.float64), torch.tensor(-3e38)]
    assert all_finite(tensors)
    assert all_finite([])
    spoiled = [tensors[0], tensors[2], tensors[3]]
    spoiled[place] = spoiled[place].clone()
    spoiled[place].view(-1)[-1] = value
    assert not all_finite(spoiled)
    assert not all_finite([tensors[1], *spoiled])


@pytest.mark.train
@pytest.mark.parametrize("rate", ["1e300", "1e39", "1e30"])  # the last leaves finite weights that overflow in the network
def test_a_run_that_diverges_publishes_nothing_of_it(tmp_path: Path, rate: str) -> None:
    settings = small_settings(*TINY, "train.updates=1", f"optimizer.learning_rate={rate}", 'train.stop_on=["non-finite"]')
    with pytest.raises(NonFiniteError, match="update 0: training has diverged") as caught:
        train_run(tmp_path / "run", settings)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert [version for version, _ in list_policies(tmp_path / "run" / "policies") if version] == []
    assert load_newest(tmp_path / "run" / "checkpoints") is None


@pytest.mark.train
def test_a_checkpoint_without_numbers_is_not_gone_on_from(tmp_path: Path) -> None:
    path, settings = tmp_path / "run", small_settings(*TINY, "train.updates=1")
    train_run(path, settings)
    found = load_newest(path / "checkpoints")
    assert found is not None
    spoiled = {name: tensor * math.nan for name, tensor in found.weights.items()}
    save = {"optimizer": found.optimizer, "estimator": found.estimator, "extra": found.extra, "attachments": found.attachments}
    (found.path / "READY").unlink()
    save_checkpoint(path / "checkpoints", 1, weights=spoiled, keep=2, **save)
    with pytest.raises(DataError, match=r"u000001: its weights hold values that are no numbers"):
        train_run(path, settings, resume=True)


@pytest.mark.unit
def test_a_batch_without_numbers_blames_its_policy_and_a_row_alone_its_producer(tmp_path: Path) -> None:
    rows = make_rollouts()
    nothing = [replace(row, engine_logprobs=[math.nan] * len(row.response_token_ids)) for row in rows]
    with pytest.raises(DataError, match=r"policy version \d+ has no numbers for log-probs, so it has diverged"):
        write_shard(tmp_path / "b000000-v000000.parquet", nothing, METADATA)
    with pytest.raises(DataError, match="the producer of this row"):
        write_shard(tmp_path / "b000000-v000000.parquet", [nothing[0], *rows[1:]], METADATA)
    assert list(tmp_path.iterdir()) == []
