"""`--delay 0` is synchronous training, bit for bit; and the update equals a stock forward with a plain loss."""

import json

import pytest
import torch
from training_runs import metrics_of, small_settings, train_run

from gmc.config.settings import RunSettings
from gmc.delays.base import delay_of
from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.grading import grade_many
from gmc.models import LanguageModel, load_model
from gmc.problems.load import load_problems
from gmc.problems.templates import get_template
from gmc.resolving.build import build_scorer
from gmc.rollouts.maker import problem_indices, sampling_seed
from gmc.store.policies import list_policies
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.store import RolloutStore
from gmc.training.optimizer import learning_rate, make_optimizer, set_learning_rate

P, G, LONGEST, UPDATES = 4, 4, 40, 6


def plain_synchronous_loop(settings: RunSettings) -> LanguageModel:
    """Sample, grade, one policy-gradient step, again: no shards, no delay, no registry."""
    model = load_model("embedded")
    engine, scorer = TransformersEngine(model), build_scorer(settings, model)
    parameters = list(model.network.parameters())
    optimizer = make_optimizer(parameters, settings.optimizer)
    problems, template = load_problems("arithmetic").problems, get_template("arithmetic-v1")
    for update in range(UPDATES):
        asked = [problems[index] for index in problem_indices(update, P, len(problems), settings.seed)]
        rendered = [template.render(problem.question, model.tokenizer) for problem in asked]
        prompts = [template.encode(prompt, model.tokenizer) for prompt in rendered]
        seeds = [sampling_seed(settings.seed, update, group) for group in range(P)]
        groups = engine.generate(prompts, group_size=G, sampling=Sampling(max_tokens=LONGEST), seeds=seeds)
        responses = [[completion.token_ids for completion in group] for group in groups]
        texts = [model.tokenizer.decode(ids, skip_special_tokens=True) for group in responses for ids in group]
        golds = [problem.answer for problem in asked for _ in range(G)]
        rewards = torch.tensor([float(v.correct) for v in grade_many(list(zip(golds, texts, strict=True)))]).view(P, G)
        advantages = (rewards - rewards.mean(1, keepdim=True)) * (G / (G - 1))
        forward = scorer.forward(prompts, responses)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        forward.backward(-(forward.mask_BT / (P * G * LONGEST)) * advantages.view(-1, 1))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        set_learning_rate(optimizer, learning_rate(update, UPDATES, settings.optimizer))
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def synchronous_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "sync"
    settings = small_settings(**{"delay": "0", "train.updates": UPDATES})
    train_run(path, settings)
    return path, settings


@pytest.mark.process
def test_delay_0_gives_the_weights_of_a_plain_synchronous_loop_bit_for_bit(synchronous_run):
    path, settings = synchronous_run
    expected = plain_synchronous_loop(settings).weights()
    trained = load_model(list_policies(path / "policies")[-1][1]).weights()
    initial = load_model("embedded").weights()
    assert trained.keys() == expected.keys()
    assert all(torch.equal(trained[name], expected[name]) for name in expected)
    assert any(not torch.equal(trained[name], initial[name]) for name in initial)


@pytest.mark.train
def test_delay_0_gives_a_ratio_of_exactly_1_on_every_trajectory(synchronous_run):
    path, _ = synchronous_run
    for record in metrics_of(path):
        assert record["delay/max"] == 0
        assert record["ratio/log_rho_max"] == 0.0
        assert record["ratio/log_rho_std"] == 0.0
        assert record["ratio/ess_share"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.train
def test_length_clock_of_zero_is_synchronous_training_bit_for_bit(synchronous_run, tmp_path):
    path, settings = synchronous_run
    train_run(tmp_path / "clock", settings.model_copy(update={"delay": "length:0"}))
    assert metrics_of(tmp_path / "clock") == metrics_of(path)
    clocked = load_model(list_policies(tmp_path / "clock" / "policies")[-1][1]).weights()
    trained = load_model(list_policies(path / "policies")[-1][1]).weights()
    assert all(torch.equal(trained[name], clocked[name]) for name in trained)


@pytest.mark.train
def test_the_update_equals_a_stock_forward_with_a_plain_loss(synchronous_run):
    """One gradient: ours against transformers' own forward, whole logits, log_softmax, autograd."""
    path, settings = synchronous_run
    run = RunDirectory.open(path)
    stored = RolloutStore(run.rollouts, run.run_id).list()[0]
    rows = read_shard(stored.path).rollouts
    model = load_model("embedded")
    prompts = [rows[group * G].prompt_token_ids for group in range(P)]
    responses = [[row.response_token_ids for row in rows[group * G : (group + 1) * G]] for group in range(P)]
    weights = torch.linspace(-1, 1, P * G)

    forward = build_scorer(settings, model).forward(prompts, responses)
    forward.backward(forward.mask_BT * weights[:, None])
    ours = {name: parameter.grad.clone() for name, parameter in model.network.named_parameters()}

    model.network.zero_grad()
    loss = torch.zeros(())
    for index, row in enumerate(rows):
        ids = torch.tensor([row.prompt_token_ids + row.response_token_ids])
        logits = model.network(ids).logits[0, len(row.prompt_token_ids) - 1 : -1, : model.vocabulary_size]
        logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(row.response_token_ids)[:, None])[:, 0]
        assert logp.tolist() == pytest.approx(row.trainer_logprobs, abs=2e-5)
        loss = loss + weights[index] * logp.sum()
    loss.backward()
    for name, parameter in model.network.named_parameters():
        assert torch.allclose(ours[name], parameter.grad, rtol=1e-3, atol=1e-4 * float(parameter.grad.abs().max())), name


@pytest.mark.train
@pytest.mark.parametrize("delay", [1, 3, 10])
def test_the_batch_of_update_n_carries_version_max_0_n_minus_d(tmp_path, delay):
    path = tmp_path / "run"
    updates = 7
    train_run(path, small_settings("rollout.max_tokens=8", **{"delay": str(delay), "train.updates": updates}))
    run = RunDirectory.open(path)
    versions = {stored.batch: stored.version for stored in RolloutStore(run.rollouts, run.run_id).list()}
    assert versions == {update: max(0, update - delay) for update in range(updates)}
    for update, (record, line) in enumerate(zip(metrics_of(path), run.used.read_text().splitlines(), strict=True)):
        assert {batch for batch, _ in json.loads(line)["groups"]} == {update}
        assert record["delay/mean"] == record["delay/max"] == delay_of(update, max(0, update - delay))
        shard = read_shard(RolloutStore(run.rollouts, run.run_id).path_for(update, versions[update]))
        assert {row.policy_version for row in shard.rollouts} == {max(0, update - delay)}


@pytest.mark.train
def test_the_model_sees_the_prompt_that_the_shard_shows(synchronous_run):
    path, _ = synchronous_run
    tokenizer = load_model("embedded").tokenizer
    for file in sorted((path / "rollouts").glob("*.parquet")):
        for rollout in read_shard(file).rollouts:
            assert tokenizer.decode(rollout.prompt_token_ids) == rollout.prompt
            assert rollout.prompt.startswith("Problem: ")
