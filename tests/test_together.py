"""Batches of the initial policy are sampled several at a time, with the same bytes whichever of them are wanted and when."""

import pyarrow.parquet as pq
import pytest
from training_runs import small_settings

from gmc.engines.transformers import ROWS_AT_ONCE, TransformersEngine
from gmc.generation.filling import fill_run
from gmc.rollouts.together import Together

BATCHES = 5


@pytest.mark.unit
def test_a_batch_comes_with_its_neighbors_whatever_the_order():
    asked = []

    def sample(batches):
        asked.append(list(batches))
        return [[[f"{batch}"]] for batch in batches]

    together = Together(3)
    assert [together.take(batch, sample) for batch in (0, 1, 2, 3, 5, 4, 7)] == [
        [[str(batch)]] for batch in (0, 1, 2, 3, 5, 4, 7)
    ]
    assert asked == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert together.take(4, sample) == [["4"]], "what was taken is sampled again"
    assert asked[-1] == [3, 4, 5]
    single = Together(1)
    asked.clear()
    assert [single.take(batch, sample) for batch in (1, 2)] == [[["1"]], [["2"]]]
    assert asked == [[1], [2]]


@pytest.fixture
def calls(monkeypatch):
    """How many prompts each call of the engine had."""
    found = []
    generate = TransformersEngine.generate

    def recorded(self, prompts, **keywords):
        found.append(len(prompts))
        return generate(self, prompts, **keywords)

    monkeypatch.setattr(TransformersEngine, "generate", recorded)
    return found


def rows(path, batch):
    [shard] = (path / "rollouts").glob(f"b{batch:06d}-*.parquet")
    return pq.read_table(shard, columns=["response_token_ids", "engine_logprobs", "trainer_logprobs", "reward"]).to_pylist()


@pytest.mark.train
def test_filling_at_once_or_in_steps_writes_the_same_rows(tmp_path, calls):
    settings = [small_settings(f"rollout.batches={count}", "rollout.prompts=8", "rollout.group_size=8") for count in (5, 2)]
    assert ROWS_AT_ONCE // 64 == 4
    done = []
    fill_run(tmp_path / "whole", settings[0], advance=done.append)
    assert calls == [32, 32]
    assert done == [64] * BATCHES
    calls.clear()
    fill_run(tmp_path / "steps", settings[1])
    fill_run(tmp_path / "steps", settings[0], resume=True)
    assert calls == [32, 32, 32], "the neighbors of batches that are there are sampled again, and left"
    for batch in range(BATCHES):
        assert rows(tmp_path / "whole", batch) == rows(tmp_path / "steps", batch)


@pytest.mark.train
def test_followers_of_a_live_run_sample_single_batches(tmp_path, calls):
    fill_run(tmp_path / "run", small_settings("rollout.batches=2", "delay=live"))
    assert calls == [4, 4]
