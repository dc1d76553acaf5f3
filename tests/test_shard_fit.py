"""Shards in a run that this run's settings, model or weights did not make are refused by name before anything is trained."""

import dataclasses

import pytest
from training_runs import small_settings, train_run

from gmc.errors import UsageError
from gmc.generation.filling import generate_batches
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.train


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    generate_batches(directory, small_settings("rollout.batches=2"), advance=lambda count: None)
    return directory


def change(run, **entries):
    stored = RolloutStore(run.rollouts, run.run_id).list()[1]
    shard = read_shard(stored.path)
    sampling = {**shard.metadata.sampling, **entries.pop("sampling", {})}
    stored.path.unlink()
    write_shard(stored.path, shard.rollouts, dataclasses.replace(shard.metadata, sampling=sampling, **entries))


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({"vocabulary_size": 10**9}, "vocabulary size is 1000000000"),
        ({"weights_hash": "ab" * 32}, "weights hash is abab"),
        ({"tokenizer_hash": "ab" * 32}, "tokenizer hash is abab"),
        ({"sampling": {"top_p": "0.5"}}, "rollout.top_p is 0.5"),
        ({"sampling": {"top_k": "40"}}, "rollout.top_k is 40"),
        ({"sampling": {"temperature": "0.7"}}, "rollout.temperature is 0.7"),
        ({"sampling": {"repetition_penalty": "much"}}, "rollout.repetition_penalty is much"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(run, entries, what):
    change(run, **entries)
    with pytest.raises(UsageError, match=rf"b000001-v000000.parquet: its {what}"):
        train_run(run.path, small_settings("delay=3", "train.updates=3"))
    assert not run.metrics.exists()


def test_another_spelling_of_the_same_number_fits(run):
    change(run, sampling={"temperature": "1", "top_p": "1.00"})
    assert train_run(run.path, small_settings("delay=1", "train.updates=2"))["finished"]
