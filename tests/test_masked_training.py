"""Responses of several turns: what the model sampled is scored and trained, what an environment wrote is context alone.

The reference is plain float64: one response at a time, the stock network in double precision, the rule in Python floats.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch
from examples import thinned
from tiny_models import tiny_model
from training_runs import small_settings

from gmc.errors import UsageError
from gmc.estimators.batch import Need
from gmc.estimators.registry import list_estimators
from gmc.gradients.assemble import assemble
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import model_gradient, objective_weights, token_gradient
from gmc.resolving.build import build_rule
from gmc.scoring.passes import PackedPass, StockPass
from gmc.scoring.scorer import Scorer
from gmc.store.shards.groups import expanded, sampled, sampled_length, token_ids
from gmc.store.shards.rollout import Rollout
from gmc.training.metrics import rollout_metrics

pytestmark = pytest.mark.unit

MAX_TOKENS = 12
# S: sampled, e: written by the environment. Turns at the start, in the middle and at the end; none at all; nothing sampled.
MASKS = [["SSSeeSS", "SSeSeeS", "SSSS", "SSeee"], ["eeSSeS", "eee", "S", "SeSeSeS"]]
PROMPTS = [[5, 6, 7, 8], [10, 11]]
REWARDS = [[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.25]]


def mask_of(text):
    return [letter == "S" for letter in text]


def make_groups(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for group, (prompt, masks) in enumerate(zip(PROMPTS, MASKS, strict=True)):
        rows = []
        for sample, text in enumerate(masks):
            tokens = torch.randint(46, (len(text),), generator=generator).tolist()
            row = Rollout(
                "run", f"p{group}", 0, group, sample, 0, prompt, tokens, "stop", REWARDS[group][sample], "", "", None, "", ""
            )
            row.response_mask = None if set(text) == {"S"} else mask_of(text)
            groups_noise = (-2 - torch.rand(sampled_length(row), generator=generator)).tolist()
            row.trainer_logprobs = row.engine_logprobs = expanded(row, groups_noise)
            row.trainer_entropies = expanded(row, [1.0 + value / 9 for value in groups_noise])
            rows.append(row)
        groups.append(rows)
    return groups


def literal_logp(network, row, vocabulary, temperature=1.0):
    """Float64 log-probs of the sampled tokens of one response, each read off the whole text before it."""
    found = []
    for place, (token, own) in enumerate(zip(row.response_token_ids, mask_of_row(row), strict=True)):
        if own:
            text = torch.tensor([row.prompt_token_ids + row.response_token_ids[:place]])
            logits = network(text).logits[0, -1, :vocabulary].double() / temperature
            found.append(logits[token] - torch.logsumexp(logits, 0))
    return found


def mask_of_row(row):
    return [True] * len(row.response_token_ids) if row.response_mask is None else row.response_mask


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def double(model):
    return copy.deepcopy(model.network).double()


def assembled(scorer, groups, rule):
    current = scorer.forward(*token_ids(groups))
    batch = assemble(
        groups,
        current.logp_BT,
        current.mask_BT,
        update=3,
        needs=rule.needs,
        logprob_kind="trainer",
        max_response_tokens=MAX_TOKENS,
        planned_updates=10,
        computed={},
    )
    return current, batch


@pytest.mark.parametrize("kind", [PackedPass, StockPass])
@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("token_budget", [10_000, 14])
def test_scores_are_those_of_the_sampled_tokens_alone(model, double, kind, share_prompts, token_budget):
    groups = make_groups(model)
    scorer = Scorer(model, temperature=0.7, token_budget=token_budget, share_prompts=share_prompts)
    scorer.active_pass = kind(model.network, model.vocabulary_size, 0.7, None, False)
    scores = scorer.score(*token_ids(groups), entropies=True)
    rows = [row for group in groups for row in group]
    assert scores.mask_BT.sum(-1).tolist() == [text.count("S") for masks in MASKS for text in masks]
    assert scores.logp_BT.shape == (8, 5)
    for row, logp_T, entropy_T in zip(rows, scores.logp_BT, scores.entropies_BT, strict=True):
        expected = [value.item() for value in literal_logp(double, row, model.vocabulary_size, 0.7)]
        assert logp_T[: len(expected)].tolist() == pytest.approx(expected, abs=2e-5)
        assert logp_T[len(expected) :].tolist() == [0.0] * (5 - len(expected))
        assert all(value > 0 for value in entropy_T[: len(expected)])
    assert torch.equal(scorer.forward(*token_ids(groups)).logp_BT, scores.logp_BT)


def test_a_mask_of_ones_scores_as_no_mask_bit_for_bit(model):
    prompts, responses, _ = token_ids(make_groups(model))
    ones = [[[True] * len(response) for response in group] for group in responses]
    plain, masked = (Scorer(model).score(prompts, responses, masks) for masks in (None, ones))
    assert torch.equal(plain.logp_BT, masked.logp_BT)
    assert torch.equal(plain.mask_BT, masked.mask_BT)


def clipped(ratio, advantage):
    """What is left of a token ratio when moving it further out gains nothing."""
    out = ratio > 1.2 if advantage > 0 else ratio < 0.8
    return 0.0 if out else ratio


def literal_gradient(name, network, groups, vocabulary, normalizer):
    """∂ objective / ∂ θ of grpo (token ratios, clipped) or gmc (a group's mass is capped), with plain floats for weights."""
    total = sum(sampled_length(row) for group in groups for row in group)
    objective = torch.zeros((), dtype=torch.float64)
    for group in groups:
        logps = [literal_logp(network, row, vocabulary) for row in group]
        behavior = [list(sampled(row, row.trainer_logprobs)) for row in group]
        ratios = [
            [math.exp(now.item() - old) for now, old in zip(*pair, strict=True)] for pair in zip(logps, behavior, strict=True)
        ]
        rho = [math.prod(ratio) for ratio in ratios]
        mass = sum(rho) / len(rho)
        for index, row in enumerate(group):
            others = [other.reward for other in group if other is not row]
            advantage = row.reward - sum(others) / len(others)
            if name == "grpo":
                advantage = row.reward - sum(other.reward for other in group) / len(group)
            for now, ratio in zip(logps[index], ratios[index], strict=True):
                weight = rho[index] * min(1.0, 1.28 / mass) if name == "gmc" else clipped(ratio, advantage)
                factor = {
                    "token-mean": 1 / total,
                    "seq-mean-token-mean": 1 / max(len(ratios[index]), 1) / 8,
                    "seq-mean-token-sum-norm": 1 / 8 / MAX_TOKENS,
                }[normalizer]
                objective = objective + factor * weight * advantage * now
    network.zero_grad()
    objective.backward()
    return [parameter.grad for parameter in network.parameters()]


@pytest.mark.parametrize("name", ["gmc", "grpo"])
@pytest.mark.parametrize("normalizer", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_the_gradient_of_a_masked_batch_is_the_plain_float64_one(model, double, name, normalizer):
    groups = make_groups(model)
    settings = small_settings(f"train.normalizer={normalizer}", f"estimator.name={name}")
    rule = build_rule(settings)
    scorer = Scorer(model)
    current, batch = assembled(scorer, groups, rule)
    grad_BT = objective_weights(token_gradient(RuleCalls(rule, 3), batch), settings.train.normalizer)
    found = model_gradient(scorer.parameters, current, grad_BT).tensors
    expected = literal_gradient(name, double, groups, model.vocabulary_size, normalizer)
    largest = max(tensor.norm().item() for tensor in expected)
    assert largest > 1e-4
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.double() - theirs).norm().item() <= 2e-5 * max(theirs.norm().item(), largest / 10)


@pytest.mark.parametrize("name", thinned((plugin.name for plugin in list_estimators() if plugin.cls is not None), 2))
def test_no_rule_sees_what_stands_at_environment_tokens(model, name):
    """Log-probs, entropies and versions that a shard holds at tokens which nobody sampled change no bit of any rule."""
    rule = build_rule(small_settings(f"estimator.name={name}"))
    seen = []
    for poison in (0.0, -7.5):
        groups = [
            [
                replace(
                    row,
                    trainer_logprobs=poisoned(row, row.trainer_logprobs, poison),
                    engine_logprobs=poisoned(row, row.engine_logprobs, poison),
                    trainer_entropies=poisoned(row, row.trainer_entropies, -poison),
                )
                for row in group
            ]
            for group in make_groups(model)
        ]
        scorer = Scorer(model)
        current = scorer.forward(*token_ids(groups))
        brought = {
            Need.SCORE_NORMS: scorer.log_score_norms(*token_ids(groups)),
            Need.ANCHOR_LOGP: current.logp_BT - 0.1,
            Need.REFERENCE_LOGP: current.logp_BT - 0.2,
        }
        brought = {need: value for need, value in brought.items() if need in rule.needs}
        batch = assemble(
            groups, current.logp_BT, current.mask_BT, update=3, needs=rule.needs, logprob_kind="trainer",
            max_response_tokens=MAX_TOKENS, planned_updates=10, computed=brought,
        )  # fmt: skip
        seen.append(token_gradient(RuleCalls(rule, 3), batch).gradient_BT)
        rule = build_rule(small_settings(f"estimator.name={name}"))
    assert torch.equal(*seen)


def poisoned(row, values, poison):
    return [value if own else poison for value, own in zip(values, mask_of_row(row), strict=True)]


def test_metrics_count_what_was_sampled(model):
    found = rollout_metrics(make_groups(model), 3)
    assert found["response/length_mean"] == sum(text.count("S") for masks in MASKS for text in masks) / 8
    assert found["response/length_max"] == 5
    assert found["response/turns_mean"] == (2 + 3 + 1 + 1 + 2 + 0 + 1 + 4) / 8
    assert found["response/environment_tokens_mean"] == sum(text.count("e") for masks in MASKS for text in masks) / 8
    plain = [[replace(row, response_mask=None) for row in group] for group in make_groups(model)]
    assert "response/turns_mean" not in rollout_metrics(plain, 3)


def test_a_mask_of_another_length_is_refused(model):
    with pytest.raises(UsageError, match="a mask of 1 values for a response of 2 tokens"):
        Scorer(model).score([[5]], [[[6, 7], [8]]], [[[False], None]])
