"""Making rollouts: what stands in a shard is what the model saw and what was graded."""

import pytest
from training_runs import small_settings

from gmc.engines.noise import measure_noise
from gmc.grading import grade_many
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.rollouts.maker import problem_indices, sampling_seed
from gmc.store.policies import publish_policy, read_policy_info


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    settings = small_settings("rollout.entropies=true")
    model = build_model(settings)
    engine = build_engine(settings, model, tmp_path_factory.mktemp("log") / "engine.log")
    return build_maker("run", settings, model, build_scorer(settings, model), engine)


@pytest.mark.process
def test_a_row_holds_what_was_asked_sampled_and_graded(maker):
    rows = maker.make(0, 0).rows
    problems = {problem.problem_id: problem for problem in maker.problem_set.problems}
    for row in rows:
        problem = problems[row.problem_id]
        assert row.prompt == maker.template.render(problem.question, maker.model.tokenizer)
        assert maker.model.tokenizer.decode(row.prompt_token_ids) == row.prompt
        assert maker.model.tokenizer.decode(row.response_token_ids, skip_special_tokens=True) == row.response
        assert row.answer == problem.answer
        (verdict,) = grade_many([(row.answer, row.response)], truncated=[row.finish_reason == "length"])
        assert (row.reward, row.status) == (float(verdict.correct), verdict.status)
        assert len(row.trainer_entropies) == len(row.trainer_logprobs) == len(row.response_token_ids)
        assert min(row.trainer_entropies) >= 0
    assert sum(row.reward for row in rows) > 0  # the embedded model does solve some
    assert [(row.group, row.sample) for row in rows] == [(group, sample) for group in range(4) for sample in range(4)]


@pytest.mark.unit
def test_a_batch_depends_on_seed_and_number_alone(maker):
    first, other = maker.make(3, 0), maker.make(4, 0)
    assert maker.make(3, 0) == first
    assert [row.response_token_ids for row in other.rows] != [row.response_token_ids for row in first.rows]


@pytest.mark.unit
def test_engine_and_trainer_agree_up_to_rounding_in_float32(maker):
    noise = measure_noise(maker.make(5, 0).rows)
    assert 0 < noise.worst < 1e-4
    assert noise.spread < 1e-5


@pytest.mark.unit
def test_every_epoch_asks_every_problem_once_in_another_order():
    total, prompts = 12, 4
    epochs = [
        [index for batch in range(3 * e, 3 * e + 3) for index in problem_indices(batch, prompts, total, 7)] for e in range(3)
    ]
    assert all(sorted(epoch) == list(range(total)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert problem_indices(0, 8, 3, 0) == problem_indices(0, 8, 3, 0)  # fewer problems than prompts: epochs follow on


@pytest.mark.unit
def test_sampling_seeds_are_distinct_and_fit_every_engine():
    seeds = {sampling_seed(seed, batch, group) for seed in range(3) for batch in range(20) for group in range(8)}
    assert len(seeds) == 3 * 20 * 8
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.unit
def test_prompts_without_room_for_a_response_are_left_out_and_counted(tmp_path):
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"question": "1+1", "answer": "2"}\n{"question": "' + "1+" * 150 + '1", "answer": "151"}\n')
    settings = small_settings("problems.template=arithmetic-v1", **{"problems.source": str(problems)})
    model = build_model(settings)
    engine = build_engine(settings, model, tmp_path / "engine.log")
    made = build_maker("run", settings, model, build_scorer(settings, model), engine)
    assert len(made.problem_set) == 1
    assert any("1 of 2 problems dropped" in note for note in made.problem_set.notes)


@pytest.mark.unit
def test_a_shard_names_the_weights_that_a_published_policy_names(maker, tmp_path):
    """One hash for one policy, also where a tied head stands twice in the state dict."""
    folder = publish_policy(maker.model, tmp_path, 0, "run")
    assert maker.metadata(3, published=True).weights_hash == read_policy_info(folder).weights_hash
    assert maker.metadata(0).weights_hash == read_policy_info(folder).weights_hash
    assert maker.metadata(3).weights_hash == ""
    assert maker.model.network.config.tie_word_embeddings  # else this test could not fail
