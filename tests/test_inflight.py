"""`--delay inflight:C`: which version samples which token, under which version it is scored, and where a run goes on."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shard_samples import write_sample
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.delays.base import GroupRef
from gmc.delays.inflight import InflightDelay
from gmc.delays.length import LengthDelay
from gmc.engines.transformers import TransformersEngine
from gmc.errors import DataError, UsageError
from gmc.models import load_model
from gmc.resolving.checks import check_settings
from gmc.rollouts import flying
from gmc.rollouts.inflight import ATTACHMENT, InflightSource
from gmc.store.checkpoints import load_newest
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.unfinished import decode_rows, encode_rows
from gmc.testing.delays import drive

PROMPTS, GROUP, MOST = 3, 2, 30


def lengths_of(batch, low=1):
    rng = np.random.default_rng([batch, 5])
    return rng.integers(low, MOST + 1, (PROMPTS, GROUP)).tolist()


class Engine:
    """Goes on with a response until the length that is meant for it; the version that stands is its token."""

    def __init__(self):
        self.version = 0

    def extend(self, partials, limits, *, sampling, progress=None):
        for partial, limit in zip(partials, limits, strict=True):
            batch, group = partial.prompt
            length = lengths_of(batch)[group][partial.sample]
            more = max(0, min(limit, length) - len(partial.token_ids))
            partial.token_ids += [self.version] * more
            partial.logprobs += [-0.5] * more
            if len(partial.token_ids) == length:
                partial.finish_reason = "stop"


def fake_maker(monkeypatch):
    settings = SimpleNamespace(
        seed=0,
        rollout=SimpleNamespace(group_size=GROUP, max_tokens=MOST, sampling=lambda stop: None),
        train=SimpleNamespace(updates=40),
    )
    record = ShardMetadata(*["run", "model", "", "tokens"], 1000, "fake", "1", {}, "plain", ("engine",), 0, GROUP, "0")

    def empty_row(batch, version, group, asked, sample):
        row = Rollout(
            "run", f"{batch}/{group}", batch, group, sample, version, [batch, group], [], "", 0.0, "", "", None, "", ""
        )
        row.engine_logprobs, row.token_versions, row.reward_parts = [], [], []
        row.launched_at = row.ready_at = float("nan")
        return row

    def reward(maker, one, version):
        for place in one.finished():
            for row in one.rows_PG[place]:
                row.status = "fine"
            one.rewarded.add(place)

    monkeypatch.setattr(flying, "reward", reward)
    return SimpleNamespace(
        settings=settings,
        template=SimpleNamespace(stop=()),
        engine=Engine(),
        scorer=None,
        reward=SimpleNamespace(metrics=dict),
        empty_row=empty_row,
        metadata=lambda version: record,
        asked=lambda batch: [
            SimpleNamespace(problem=SimpleNamespace(problem_id=f"{batch}/{group}")) for group in range(PROMPTS)
        ],
    )


def source_of(tmp_path, maker, clock, updates):
    delay = InflightDelay(clock, prompts=PROMPTS, updates=updates)
    return InflightSource(RolloutStore(tmp_path, "run"), delay, maker, spec=f"inflight:{clock:g}")


def versions_by_definition(starts, batch, clock, length):
    """Token t begins at b + C·t/100; version n stands from the end of update n − 1 to the end of update n."""
    stands_from = [0.0] + [start + 1 for start in starts]
    return [sum(begin <= batch + clock * (token / 100) for begin in stands_from) - 1 for token in range(length)]


@pytest.mark.unit
@pytest.mark.parametrize("clock", [0.0, 3.0, 7.3, 10.0, 33.0, 100.0, 250.0])
def test_groups_come_as_under_the_length_clock_and_each_token_from_the_version_that_stands(tmp_path, monkeypatch, clock):
    updates = 14
    known = LengthDelay(clock, prompts=PROMPTS, updates=updates)
    wanted = drive(known, updates, lengths_of)
    maker = fake_maker(monkeypatch)
    source = source_of(tmp_path, maker, clock, updates)
    mixed = 0
    for update in range(updates):
        maker.engine.version = update
        assert source.launch(update)
        groups = source.take(update)
        assert [(group[0].batch, group[0].group) for group in groups] == wanted.taken[update]
        assert source.waiting == wanted.waiting[update]
        for row in (row for group in groups for row in group):
            length = lengths_of(row.batch)[row.group][row.sample]
            versions = versions_by_definition(known.starts, row.batch, clock, length)
            assert row.response_token_ids == versions
            assert row.token_versions == (versions if len(set(versions)) > 1 else None)
            assert row.policy_version == versions[0] == wanted.versions[row.batch]
            assert (row.launched_at, row.ready_at) == wanted.times[(row.batch, row.group)]
            mixed += len(set(versions)) > 1
    assert (mixed > 0) == (clock > 0)
    source.ended(updates)
    on_disk = {stored.batch for stored in RolloutStore(tmp_path, "run").list()}
    assert {group.batch for groups in wanted.taken for group in groups} <= on_disk


@pytest.mark.unit
@pytest.mark.parametrize("stop_at", [1, 5, 9])
def test_a_source_goes_on_from_its_state_also_after_a_stop_amid_a_launch(tmp_path, monkeypatch, stop_at):
    clock, updates = 33.0, 12
    maker = fake_maker(monkeypatch)
    whole, taken = source_of(tmp_path / "whole", maker, clock, updates), []
    for update in range(updates):
        maker.engine.version = update
        whole.launch(update)
        taken.append(whole.take(update))
    first, used = source_of(tmp_path / "cut", maker, clock, updates), []
    for update in range(stop_at):
        maker.engine.version = update
        first.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in first.take(update)])
    state, attachments = first.state_dict(), first.attachments()
    maker.engine.version = stop_at
    asked = []
    first._stopping = lambda: asked.append(None) or len(asked) > 1
    if first.launch(stop_at):  # whole steps may be all that it takes
        first.take(stop_at)
    second = source_of(tmp_path / "cut", maker, clock, updates)
    second.load_attachments(attachments, "checkpoint")
    second.load_state_dict(state, used)
    assert second.in_flight == {batch: version for batch, version, _ in state["flying"]}
    for update in range(stop_at, updates):
        maker.engine.version = update
        second.launch(update)
        assert second.take(update) == taken[update]
    assert second.metrics() == whole.metrics()


@pytest.mark.unit
def test_a_stop_before_the_first_update_keeps_what_is_whole_already(tmp_path, monkeypatch):
    maker = fake_maker(monkeypatch)
    first = source_of(tmp_path, maker, 0.0, 3)
    first.launch(0)
    assert first.in_flight == {}
    second = source_of(tmp_path, maker, 0.0, 3)
    second.load_attachments(first.attachments(), "checkpoint")
    second.load_state_dict(first.state_dict(), [])
    second.launch(0)
    assert [group[0].batch for group in second.take(0)] == [0] * PROMPTS
    assert not list(tmp_path.glob("aside-*"))


@pytest.mark.unit
def test_tokens_before_a_time_are_those_that_begin_before_it():
    rng = np.random.default_rng(1)
    for _ in range(500):
        clock, batch, until = (
            float(rng.choice([0.0, 1e-320, 0.1, 7.0, 28.0, 33.3])),
            int(rng.integers(9)),
            float(rng.integers(90)) / 7,
        )
        delay = InflightDelay(clock, prompts=1, updates=5)
        wanted = sum(batch + clock * (token / 100) < until for token in range(50))
        assert delay.tokens_before(batch, until, 50) == wanted


@pytest.mark.unit
def test_rows_in_flight_come_back_as_they_were(tmp_path, monkeypatch):
    maker = fake_maker(monkeypatch)
    one = flying.launch(maker, 3, 2)
    flying.extend(maker, [one], [7], 2)
    rows = decode_rows(encode_rows(one.rows, "x"), "x")
    assert [dataclasses.replace(row, launched_at=0.0, ready_at=0.0) for row in rows] == [
        dataclasses.replace(row, launched_at=0.0, ready_at=0.0) for row in one.rows
    ]
    assert decode_rows(encode_rows([], "x"), "x") == []
    with pytest.raises(DataError, match="here: not the rows in flight"):
        decode_rows(b"PAR1 and nothing else", "here")


@pytest.mark.unit
def test_what_cannot_be_combined_is_refused_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"--delay inflight:9: rollout\.resample_equal asks further prompts"):
        check_settings(small_settings("delay=inflight:9", "rollout.resample_equal=2"))
    with pytest.raises(UsageError, match="--delay inflight:9: engine vllm cannot go on with a response under new weights"):
        check_settings(small_settings("delay=inflight:9", "rollout.engine=vllm"))
    with pytest.raises(UsageError, match="inflight"):
        check_settings(small_settings("delay=inflight:9:group=mean"))
    maker = fake_maker(monkeypatch)
    source = source_of(tmp_path, maker, 0.0, 3)
    source.launch(0)
    source_of(tmp_path, maker, 0.0, 3).launch(0)  # killed before its first checkpoint: begins again
    assert (tmp_path / "aside-1" / "b000000-v000000.parquet").exists()
    write_sample(tmp_path, batch=1, version=0)
    with pytest.raises(UsageError, match=r"b000001-v000000\.parquet: --delay inflight:5 samples every response itself"):
        source_of(tmp_path, maker, 5.0, 3).launch(0)
    other = source_of(tmp_path, maker, 5.0, 3)
    with pytest.raises(DataError, match="it holds nothing in flight, so it was made under another delay"):
        other.load_attachments({}, "checkpoint")
    other.load_attachments(source.attachments(), "checkpoint")
    with pytest.raises(DataError, match=r"another delay than --delay inflight:5 \(the clock was 0\)"):
        other.load_state_dict(source.state_dict(), [])


@pytest.mark.train
def test_a_clock_of_zero_is_synchronous_training_bit_for_bit(tmp_path, monkeypatch):
    """Each batch sampled by itself: several initial ones in one call, which in-flight sampling cannot, differ in rounding."""
    monkeypatch.setattr(TransformersEngine, "batches_at_once", lambda self, rows: 1)
    runs = []
    for delay in ("0", "inflight:0"):
        settings = small_settings(f"delay={delay}", "train.updates=3", "rollout.entropies=true")
        train_run(tmp_path / delay, settings)
        runs.append((weights_of(tmp_path / delay), read_rows(tmp_path / delay)))
    assert runs[0] == runs[1]


def read_rows(path):
    run = RunDirectory.open(path)
    rows = [row for stored in RolloutStore(run.rollouts, run.run_id).list() for row in read_shard(stored.path).rollouts]
    return [dataclasses.replace(row, run_id="", launched_at=None, ready_at=None) for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose every version is published."""
    path = tmp_path_factory.mktemp("inflight") / "run"
    settings = ["delay=inflight:20", "train.updates=6", "train.publish_every=1", "rollout.entropies=true"]
    train_run(path, small_settings(*settings, "optimizer.learning_rate=5e-3", "rollout.temperature=0.8"))
    return path


@pytest.mark.train
def test_each_token_has_the_log_prob_and_entropy_of_the_version_that_sampled_it(finished):
    """Against the stock forward of every published policy, token by token, in float64."""
    rows = [row for row in read_rows(finished) if row.token_versions is not None]
    assert {version for row in rows for version in row.token_versions} == set(range(7))  # the last ones finished at the end
    models = {version: load_model(finished / "policies" / f"v{version:06d}") for version in range(1, 7)}
    models[0] = load_model("embedded")
    checked = 0
    for row in rows:
        ids = torch.tensor([[*row.prompt_token_ids, *row.response_token_ids]])
        for version in set(row.token_versions):
            with torch.no_grad():
                logits = models[version].network(ids).logits[0].double() / 0.8
            logp_TV = logits[:, : models[version].vocabulary_size].log_softmax(-1)
            for token, own in enumerate(row.token_versions):
                if own == version:
                    place = len(row.prompt_token_ids) + token - 1
                    wanted = float(logp_TV[place, row.response_token_ids[token]])
                    assert row.trainer_logprobs[token] == pytest.approx(wanted, abs=5e-5)
                    assert row.engine_logprobs[token] == pytest.approx(wanted, abs=5e-5)  # caches are read anew
                    entropy = float(-(logp_TV[place].exp() * logp_TV[place]).sum())
                    assert row.trainer_entropies[token] == pytest.approx(entropy, abs=2e-4)
                    checked += 1
    assert checked > 200
    moved = [models[6].weights()[name] - models[0].weights()[name] for name in models[0].weights()]
    assert max(float(tensor.abs().max()) for tensor in moved) > 1e-2  # else every version would do


@pytest.mark.train
def test_launched_is_trained_plus_waiting_and_the_checkpoint_holds_what_is_in_flight(finished):
    checkpoint = load_newest(finished / "checkpoints")
    in_flight = {row.batch for row in decode_rows(checkpoint.attachments[ATTACHMENT], "x")}
    last = metrics_of(finished)[-1]
    launched = checkpoint.extra["source"]["clock"]["launched"]
    assert launched * 4 == 6 * 4 + last["rollouts/groups_waiting"]
    assert in_flight == {batch for batch, _, _ in checkpoint.extra["source"]["flying"]}
    run = RunDirectory.open(finished)
    on_disk = {stored.batch for stored in RolloutStore(run.rollouts, run.run_id).list()}
    assert on_disk | in_flight == set(range(launched))


@pytest.mark.train
def test_a_finished_run_made_longer_equals_one_that_was_planned_so(tmp_path):
    base = ["delay=inflight:20", "optimizer.schedule=constant", "train.checkpoint_every=2"]
    train_run(tmp_path / "whole", small_settings(*base, "train.updates=6"))
    train_run(tmp_path / "parts", small_settings(*base, "train.updates=3"))
    train_run(tmp_path / "parts", small_settings(*base, "train.updates=6"), resume=True)
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")
    assert weights_of(tmp_path / "parts") == weights_of(tmp_path / "whole")
    assert read_rows(tmp_path / "parts") == read_rows(tmp_path / "whole")
