"""Groups with equal rewards give their places to further prompts: which, how many, and the account of what was set aside."""

import dataclasses
import json

import pytest
from shard_samples import METADATA, make_rollouts, write_sample
from test_live_source import make_source as live_source
from test_scheduled_source import PROMPTS, Maker, make_source
from training_runs import metrics_of, small_settings, train_run

from gmc.delays.base import GroupRef
from gmc.engines.transformers import TransformersEngine
from gmc.errors import UsageError
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.rollouts.maker import problem_indices, sampling_seed
from gmc.rollouts.resampling import Made, further_problems
from gmc.rollouts.shard_fit import ShardCheck
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_metadata
from gmc.store.shards.rollout import SetAside
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.writer import write_shard

BATCH = 5
"""A batch of which some equal groups are replaced, some are not, and some further prompts come in vain."""
ASIDE = (SetAside("p7", 1.0, 30), SetAside("p8", 0.0, 12))


def maker_of(tmp_path, limit):
    settings = small_settings(f"rollout.resample_equal={limit}", "rollout.prompts=6")
    model = build_model(settings)
    engine = build_engine(settings, model, tmp_path / "engine.log")
    return build_maker("run", settings, model, build_scorer(settings, model), engine)


@pytest.mark.unit
def test_further_problems_are_others_drawn_once_and_by_seed_and_batch_alone():
    asked = [3, 5, 3]
    drawn = further_problems(7, asked, 6, 20, 1)
    assert len(drawn) == len(set(drawn)) == 6
    assert not set(drawn) & set(asked)
    assert drawn == further_problems(7, asked, 6, 20, 1)
    assert drawn[:4] != further_problems(8, asked, 4, 20, 1)
    assert drawn[:4] != further_problems(7, asked, 4, 20, 2)
    assert sorted(further_problems(0, [0, 1], 50, 6, 0)) == [2, 3, 4, 5]  # a small set has no more
    assert further_problems(0, [0, 1, 2], 4, 3, 0) == []
    counts = [sum(index in further_problems(batch, [], 2, 10, 0) for batch in range(1000)) for index in range(10)]
    assert min(counts) > 150
    assert max(counts) < 250  # each problem as often as any other: 200 on average


@pytest.mark.unit
def test_equal_groups_give_their_places_and_nothing_else_changes(tmp_path, monkeypatch):
    """Against a loop over single prompts, which shares nothing with the maker but the engine and the reward."""
    monkeypatch.setattr(TransformersEngine, "batches_at_once", lambda self, rows: 1)  # no neighbors among what is asked
    plain, resampling = maker_of(tmp_path, 0), maker_of(tmp_path, 5)
    asked = []
    generate = resampling.engine.generate

    def watched(prompts, **options):
        asked.extend(options["seeds"])
        return generate(prompts, **options)

    resampling.engine.generate = watched
    before, made = plain.make(BATCH, 0), resampling.make(BATCH, 0)
    assert before.set_aside == ()
    assert asked == [sampling_seed(0, BATCH, number) for number in range(len(asked))]  # every group has a seed of its own
    assert len(asked) == 6 + len(made.set_aside) > 6
    first, last = ([[row for row in rows if row.group == group] for group in range(6)] for rows in (before.rows, made.rows))
    kept = 0
    for old, new in zip(first, last, strict=True):
        assert [row.sample for row in new] == [0, 1, 2, 3]
        if len({row.reward for row in old}) > 1 or len({row.reward for row in new}) == 1:
            assert [row.response_token_ids for row in new] == [row.response_token_ids for row in old]
            kept += 1
        else:
            assert new[0].problem_id not in {row.problem_id for row in before.rows}
    assert kept < 6  # else this batch had nothing to replace
    problems = resampling.problem_set.problems
    offered = further_problems(BATCH, problem_indices(BATCH, 6, len(problems), 0), 5, len(problems), 0)
    further = [problems[index].problem_id for index in offered][: len(made.set_aside)]
    in_places = [group[0].problem_id for group in last if group[0].problem_id in further]
    replaced = [group[0].problem_id for group, new in zip(first, last, strict=True) if new[0].problem_id != group[0].problem_id]
    wanted = sorted(replaced + [name for name in further if name not in in_places])
    assert sorted(group.problem_id for group in made.set_aside) == wanted
    tokens = {group[0].problem_id: sum(len(row.response_token_ids) for row in group) for group in first}
    for group in made.set_aside:
        assert group.reward in (0.0, 1.0)
        assert group.tokens == tokens.get(group.problem_id, group.tokens) > 0


@pytest.mark.unit
def test_no_further_prompt_is_asked_once_all_places_differ(tmp_path):
    many = maker_of(tmp_path, 400)
    made = many.make(0, 0)
    assert all(len({row.reward for row in made.rows if row.group == group}) > 1 for group in range(6))
    assert 0 < len(made.set_aside) < 100
    assert many.make(0, 0) == made


class AsideMaker(Maker):
    """Sets two groups aside in every batch."""

    def make(self, batch, version, progress=None):
        return Made(super().make(batch, version, progress).rows, ASIDE)


@pytest.mark.unit
def test_a_scheduled_source_counts_what_its_launches_set_aside_also_after_a_resume(tmp_path):
    source = make_source(tmp_path, 2, maker=AsideMaker())
    used = []
    for update, launched in ((0, 3), (1, 4)):
        source.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in source.take(update)])
        metrics = source.metrics()
        assert metrics["rollouts/groups_set_aside_so_far"] == 2 * launched
        assert metrics["rollouts/set_aside_reward_mean_so_far"] == 0.5
        assert metrics["rollouts/set_aside_tokens_so_far"] == 42 * launched
        assert metrics["rollouts/groups_waiting"] == PROMPTS * (launched - update - 1)
    resumed = make_source(tmp_path, 2, maker=AsideMaker())
    resumed.load_state_dict(source.state_dict(), used)
    assert resumed.metrics() == metrics
    assert [read_metadata(stored.path).set_aside for stored in source._store.list()] == [ASIDE] * 4


@pytest.mark.unit
def test_a_live_source_counts_what_its_batches_set_aside_also_after_a_resume(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    run.rollouts.mkdir(exist_ok=True)
    for batch in range(3):
        path = run.rollouts / f"b{batch:06d}-v000000.parquet"
        write_shard(path, make_rollouts(batch=batch, version=0), dataclasses.replace(METADATA, set_aside=ASIDE[: batch + 1]))
    source, used = live_source(run), []
    for update, count in ((0, 1), (1, 3)):
        source.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in source.take(update)])
        assert source.metrics()["rollouts/groups_set_aside_so_far"] == count
    resumed = live_source(run)
    resumed.load_state_dict({}, used)
    assert resumed.metrics() == source.metrics()


@pytest.mark.unit
def test_shards_made_with_another_limit_are_refused_and_those_that_do_not_say_are_not(tmp_path):
    settings = small_settings("rollout.resample_equal=3")
    model = build_model(settings)
    check = ShardCheck(settings, model, "")
    own = dataclasses.replace(METADATA, group_size=4, sampling={}, rewards=(), resample_equal=2)
    own = dataclasses.replace(own, vocabulary_size=model.vocabulary_size, tokenizer_hash=check._wanted["tokenizer hash"])
    path = write_sample(tmp_path, batch=0, version=2)
    stored = RolloutStore(tmp_path, METADATA.run_id).list()[0]
    for given, refused in ((2, True), (3, False), (None, False)):
        path.unlink()
        write_shard(path, [], dataclasses.replace(own, resample_equal=given))
        if refused:
            with pytest.raises(UsageError, match=r"rollout.resample_equal is 2, this command's is 3"):
                check(stored, None)
        else:
            check(stored, None)


@pytest.mark.train
@pytest.mark.parametrize("delay", ["2", "reuse:2", "length:10", "length:mean=1"])
def test_launched_is_trained_plus_waiting_plus_set_aside(tmp_path, monkeypatch, delay):
    path, launched = tmp_path / "run", set()
    generate = TransformersEngine.generate

    def counted(self, prompts, **options):
        launched.update(options["seeds"])  # one a prompt, also where batches are sampled together
        return generate(self, prompts, **options)

    monkeypatch.setattr(TransformersEngine, "batches_at_once", lambda self, rows: 1)  # none ahead of its launch
    monkeypatch.setattr(TransformersEngine, "generate", counted)
    train_run(path, small_settings(f"delay={delay}", "rollout.resample_equal=2", "train.updates=4", "rollout.max_tokens=24"))
    run = RunDirectory.open(path)
    shards = [read_metadata(stored.path) for stored in RolloutStore(run.rollouts, run.run_id).list()]
    aside = sum(len(record.set_aside) for record in shards)
    last = metrics_of(path)[-1]
    uses = 2 if delay.startswith("reuse") else 1
    used = sum(len(json.loads(line)["groups"]) for line in (path / "used.jsonl").read_text().splitlines())
    assert last["rollouts/groups_set_aside_so_far"] == aside > 0
    assert all(len(record.set_aside) <= 2 == record.resample_equal for record in shards)
    assert (len(launched) - aside) * uses == used + last["rollouts/groups_waiting"]
