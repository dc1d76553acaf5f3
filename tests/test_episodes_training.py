"""Training, evaluation and resume in an environment of several turns."""

import json

import pytest
from training_runs import assert_resumes_bit_for_bit, metrics_of, small_settings, train_run

from gmc.errors import UsageError
from gmc.evaluation.results import read_result
from gmc.generation.filling import fill_run
from gmc.library import evaluate
from gmc.resolving.checks import check_settings
from gmc.store.shards.reader import read_launch, read_metadata, read_shard
from gmc.testing import check_environment

pytestmark = pytest.mark.train

RETRY = ["rollout.environment=retry", "rollout.max_tokens=64", "rollout.prompts=2"]


def shards(run):
    return sorted((run / "rollouts").glob("*.parquet"))


@pytest.mark.parametrize("delay", ["0", "2"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, delay):
    settings = small_settings(*RETRY, f"delay={delay}", "train.checkpoint_every=2", "train.updates=5")
    runs = assert_resumes_bit_for_bit(tmp_path, settings, update=3)
    assert any(record["optimizer/gradient_norm"] > 0 for record in metrics_of(runs[0]))
    rows = [[read_shard(path).rollouts for path in shards(run)] for run in runs]
    assert [[(row.response_token_ids, row.response_mask, row.reward) for row in shard] for shard in rows[0]] == [
        [(row.response_token_ids, row.response_mask, row.reward) for row in shard] for shard in rows[1]
    ]


def test_shards_say_who_wrote_each_token_and_the_ratio_at_delay_0_is_exactly_one(tmp_path):
    train_run(tmp_path / "run", small_settings(*RETRY, "delay=0", "train.updates=2"))
    seen = 0
    for path in shards(tmp_path / "run"):
        assert read_metadata(path).environment.startswith("retry(tries=2")
        rows = read_shard(path).rollouts
        lengths = [length for group in read_launch(path).lengths_PG for length in group]
        for row, length in zip(rows, lengths, strict=True):
            mask = row.response_mask or [True] * len(row.response_token_ids)
            assert length == sum(mask) <= 64
            assert len(row.turns or [""]) == 1 + 2 * (row.response_mask is not None)
            assert row.response == "".join(row.turns or [row.response])
            for logps in (row.engine_logprobs, row.trainer_logprobs):
                assert [logp == 0 for logp, own in zip(logps, mask, strict=True) if not own] == [True] * mask.count(False)
            if row.turns:
                seen += 1
                assert row.turns[1].startswith("\nProblem: Wrong. Try again: ")
                assert row.reward in (0.0, 0.5)
    assert seen > 3
    for metrics in metrics_of(tmp_path / "run"):
        assert metrics["ratio/log_rho_max"] == 0
        assert 1 < metrics["response/turns_mean"] < 2
        assert metrics["response/environment_tokens_mean"] > 3


def test_rollouts_of_another_environment_are_refused(tmp_path):
    fill_run(tmp_path / "run", small_settings(*RETRY, "rollout.batches=1"))
    with pytest.raises(UsageError, match="give --environment as it was"):
        train_run(tmp_path / "run", small_settings("rollout.max_tokens=64", "rollout.prompts=2", "delay=0", "train.updates=1"))


def test_responses_in_flight_are_refused_where_an_environment_answers_them():
    with pytest.raises(UsageError, match="answers whole turns, and a response in flight may pause within one"):
        check_settings(small_settings(*RETRY, "delay=inflight:4"))


def test_a_policy_is_evaluated_in_the_environment_that_it_was_trained_in(tmp_path):
    train_run(tmp_path / "run", small_settings(*RETRY, "delay=0", "train.updates=1", "train.publish_every=1"))
    evaluate(tmp_path / "run", n=1, limit=6, greedy=False, max_tokens=64)
    evaluate(tmp_path / "run", n=1, limit=6, greedy=False, max_tokens=64, environment="single")
    found = {}
    for path in (tmp_path / "run" / "evals").glob("*.json"):
        result = read_result(path)
        found[result.record["spec"]["environment"].partition("(")[0]] = result
    assert not found["retry"].rewarded.binary
    assert found["single"].rewarded.binary
    several = [sample for sample in found["retry"].samples() if sample.response_mask]
    assert several
    mean = sum(sample.sampled_tokens for sample in found["retry"].samples()) / 6
    assert found["retry"].record["outcomes"]["sampled"]["mean_response_tokens"] == pytest.approx(mean)
    assert all(sample.response_mask is None for sample in found["single"].samples())
    assert json.loads(next(iter((tmp_path / "run" / "evals").glob("*.json"))).read_text())


def test_the_package_that_the_scaffold_writes_works(tmp_path, monkeypatch):
    from gmc.cli.environments_new import ENVIRONMENT_SCAFFOLD

    folder = ENVIRONMENT_SCAFFOLD.write("second-look", tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    from gmc_second_look.environment import SecondLook

    check_environment(SecondLook, {"looks": 3})
    exec(compile((folder / "tests" / "test_second_look.py").read_text(), "test", "exec"), scope := {})
    scope["test_the_contract"]()
    scope["test_one_second_look"]()
