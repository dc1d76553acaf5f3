"""`live.in_flight`: a batch that goes on under newer policies, with every token's own version, log-probs and mismatch."""

import time

import pytest
import torch
from training_runs import small_settings

from gmc.config.settings import RunSettings
from gmc.errors import UsageError
from gmc.generation.following import PolicyWork, follow_run
from gmc.generation.in_flight import Swaps, sample_in_flight
from gmc.models import load_model
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.checks import check_settings
from gmc.rollouts import flying
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard

EVERY = 7
"""Tokens after which a newer policy is there."""


@pytest.fixture
def at_every_token(monkeypatch):
    """A follower looks for newer policies after every token."""
    monkeypatch.setattr("gmc.generation.in_flight.LOOK_SECONDS", 0.0)


def live_settings(*assignments: str) -> RunSettings:
    return small_settings("delay=live", "live.in_flight=true", *assignments)


def maker_of(settings, tmp_path):
    model = build_model(settings)
    return build_maker("run", settings, model, build_scorer(settings, model), build_engine(settings, model, tmp_path / "log"))


def moved(weights, version):
    """The embedded weights, a little further with every version."""
    generator = torch.Generator().manual_seed(version)
    return {
        name: value + 0.05 * version * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in weights.items()
    }


def logp_of(model, row):
    ids = torch.tensor([[*row.prompt_token_ids, *row.response_token_ids]])
    with torch.no_grad():
        logits = model.network(ids).logits[0, len(row.prompt_token_ids) - 1 : -1, : model.vocabulary_size].double()
    return logits.log_softmax(-1)[torch.arange(len(row.response_token_ids)), torch.tensor(row.response_token_ids)].tolist()


@pytest.mark.train
@pytest.mark.parametrize("keep_cache", [False, True])
def test_staleness_and_mismatch_are_two_exact_factors(tmp_path, keep_cache, at_every_token):
    maker = maker_of(live_settings(), tmp_path)
    first = {name: value.clone() for name, value in maker.model.weights().items()}
    asked, versions = [], [3]

    def newer():
        asked.append(None)
        return len(asked) % EVERY == 0

    def load():
        versions.append(versions[-1] + 1)
        with torch.no_grad():
            for name, parameter in maker.model.weights().items():
                parameter.copy_(moved(first, versions[-1])[name])
        return versions[-1]

    one, last = sample_in_flight(maker, 0, 3, Swaps(newer, load, keep_cache))
    assert flying.reward(maker, one, last, flying.read(maker, one)) == [0, 1, 2, 3]
    rows = one.rows
    assert last == versions[-1] > 5
    reference = {}
    for version in versions:
        model = load_model("embedded")
        with torch.no_grad():
            for name, parameter in model.weights().items():
                parameter.copy_(first[name] if version == 3 else moved(first, version)[name])
        reference[version] = model
    mismatch = 0.0
    for row in rows:
        own = [3 + token // EVERY for token in range(len(row.response_token_ids))]
        assert row.token_versions == own
        assert row.finish_reason in ("stop", "length")
        assert row.status
        logp = {version: logp_of(reference[version], row) for version in set(own)}
        wanted = [logp[version][token] for token, version in enumerate(own)]
        assert row.trainer_logprobs == pytest.approx(wanted, abs=5e-5)  # whatever the cache held
        apart = [abs(engine - trainer) for engine, trainer in zip(row.engine_logprobs, wanted, strict=True)]
        assert max(apart[:EVERY]) < 5e-5
        mismatch = max([mismatch, *apart[EVERY:]])
    assert any(flying.versions_of(row) for row in rows)
    assert (mismatch > 1e-2) if keep_cache else (mismatch < 5e-5)


@pytest.mark.train
def test_a_follower_takes_policies_as_they_are_published_and_writes_one_shard(tmp_path, at_every_token):
    settings = live_settings("rollout.max_tokens=40")
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    maker = maker_of(settings, tmp_path)
    maker.run_id = run.run_id
    maker.reward.metrics = lambda: {"tries": 1.5}
    trainer = load_model("embedded")
    first = {name: value.clone() for name, value in trainer.weights().items()}
    publish_policy(trainer, run.policies, 0, run.run_id)
    work = PolicyWork(maker, run.policies)
    work.load_policy(run.policies / "v000000")
    score, published = maker.scorer.score, []

    def publish_meanwhile(*ids, **options):
        """Another policy comes while the tokens of version 0 are scored: the newest is taken, and version 1 is passed over."""
        version = len(published) + 1
        if version < 3:
            with torch.no_grad():
                for name, parameter in trainer.weights().items():
                    parameter.copy_(moved(first, version)[name])
            published.append(publish_policy(trainer, run.policies, version, run.run_id))
        return score(*ids, **options)

    maker.scorer.score = publish_meanwhile
    publish_meanwhile([[1]], [[[2], [2]]], [[None, None]])  # one is there before anything is sampled
    path = run.rollouts / "b000000-v000000.parquet"
    started = time.time()
    batch = work.begin(0, 0)
    assert batch.sample() == 2
    counts = batch.finish(path)
    shard = read_shard(path, run_id=run.run_id)
    assert counts.responses == 16
    assert (shard.metadata.weights_hash, shard.metadata.reward_log) == ("", {"tries": 1.5})
    assert {version for row in shard.rollouts for version in row.token_versions or [0]} == {0, 2}
    assert {row.policy_version for row in shard.rollouts} == {0}
    assert all(started <= row.launched_at <= row.ready_at for row in shard.rollouts)
    assert counts.tokens == sum(len(row.response_token_ids) for row in shard.rollouts)


@pytest.mark.unit
def test_what_cannot_go_on_under_new_weights_is_refused_in_one_line(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    with pytest.raises(UsageError, match=r"live\.in_flight: engine vllm cannot go on with a response under new weights"):
        follow_run(run, live_settings("rollout.engine=vllm"))
    with pytest.raises(UsageError, match=r"live\.in_flight: rollout\.resample_equal asks further prompts"):
        check_settings(live_settings("rollout.resample_equal=1"))
    check_settings(live_settings("rollout.engine=vllm"))  # the trainer's own engine samples nothing
