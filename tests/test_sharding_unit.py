"""Dealing out parts of groups, steps in lockstep, gradients in parts, settings that do not go with sharding, and its plan."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_runs import small_settings

from gmc.errors import UsageError
from gmc.estimators.gac import GAC
from gmc.estimators.gradient import Gradient
from gmc.gradients.rule_calls import EstimatorStageError, RuleCalls
from gmc.models import embedded_model_path
from gmc.resolving.checks import check_settings
from gmc.resolving.memory import GIB, fitted_plan
from gmc.scoring.dealing import NULL, deal, make_steps

pytestmark = pytest.mark.unit


def tokens(pieces, prompts, responses):
    return sum(
        prompts[piece.group] + sum(max(responses[piece.group][sample] - 1, 0) for sample in piece.samples) for piece in pieces
    )


@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    ranks=st.integers(1, 9),
    data=st.data(),
)
def test_every_response_is_dealt_once_and_in_order(prompts, ranks, data):
    size = data.draw(st.integers(1, 6))
    lengths = [data.draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)) for _ in prompts]
    dealt = deal(prompts, lengths, ranks)
    assert len(dealt) == ranks
    seen = sorted((piece.group, sample) for pieces in dealt for piece in pieces for sample in piece.samples)
    assert seen == [(group, sample) for group, row in enumerate(lengths) for sample, length in enumerate(row) if length]
    assert all(pieces == sorted(pieces, key=lambda piece: (piece.group, piece.samples)) for pieces in dealt)


def test_parts_of_groups_are_dealt_out_and_a_long_response_costs_its_own_tokens_alone():
    prompts, lengths = [10, 10], [[501] + [51] * 7, [51] * 8]
    dealt = deal(prompts, lengths, 4)
    loads = sorted(tokens(pieces, prompts, lengths) for pieces in dealt)
    assert loads[-1] == 510  # the long response alone, with its prompt
    even = deal([10], [[50] * 8], 4)  # one prompt, four ranks
    assert sorted(tokens(pieces, [10], [[50] * 8]) for pieces in even) == [108] * 4
    whole = deal([10] * 8, [[50] * 8] * 8, 4)
    assert (
        sorted(len(piece.samples) for pieces in whole for piece in pieces) == [8] * 8
    )  # nothing is cut where that gains nothing


def test_in_lockstep_every_rank_has_as_many_steps_its_largest_first():
    prompts, lengths = [3, 3, 3], [[20, 20, 20, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    steps = [make_steps(prompts, lengths, 30, rank=rank, ranks=2, share_prompts=True, lockstep=True) for rank in range(2)]
    assert steps[0].plans == steps[1].plans
    first, second = (step.plan for step in steps)
    assert len(first) == len(second)
    assert NULL in (*first, *second)
    for plan in (first, second):
        assert [each.tokens for each in plan] == sorted((each.tokens for each in plan), reverse=True)
    prompts_P = [[0] * n for n in prompts]
    responses_PG = [[[0] * n for n in row] for row in lengths]
    only_last = [False, False, True] + [False] * 9
    decided = [[step.reduced(index, prompts_P, responses_PG, only_last) for index in range(len(step.plan))] for step in steps]
    assert [one is None for one in decided[0]] == [one is None for one in decided[1]]  # all run a step, or none
    assert [one and one[1] for one in decided[0]] == [one and one[1] for one in decided[1]]
    assert sum(one is not None for one in decided[0]) == 1


class Halves(Gradient):
    """What a rank holds of a vector, whose other half the test knows."""

    def __init__(self, tensors, other):
        super().__init__(tensors)
        self.other = other

    def dot(self, other):
        return super().dot(other) + self.other

    def of(self, tensors):
        return Halves(tensors, self.other)


def test_gac_takes_norms_and_cosines_of_the_whole_gradient_also_after_a_resume():
    rule, resumed = GAC(), GAC()
    own = Halves([torch.tensor([3.0])], 16.0)
    rule.gradient(own)
    resumed.load_state_dict(rule.state_dict())
    resumed.gradient(own)
    assert resumed.metrics(SimpleNamespace())["cosine"] == pytest.approx(1.0)  # (9 + 16) / (5 · 5)


def test_a_rule_that_makes_a_gradient_of_its_own_is_told_how():
    rule = GAC()
    rule.gradient = lambda gradient: Gradient(gradient.tensors)
    with pytest.raises(EstimatorStageError, match=r"make it with gradient\.of"):
        RuleCalls(rule, 0).gradient(Halves([torch.ones(1)], 0.0))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.compile=true", "train.compile = true"),
        ("model.lora.rank=4", "model.lora.rank = 4"),
        ("optimizer.name=adamw8bit", "optimizer.name = adamw8bit"),
        ("seed=1", "torchrun --nproc-per-node"),
    ],
)
def test_what_does_not_go_with_sharding_is_refused_in_one_line(setting, message):
    with pytest.raises(UsageError, match=message) as caught:
        check_settings(small_settings("train.sharding=full", setting))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The config of a model of eight billion parameters, in few layers: each takes its time to count."""
    folder = tmp_path_factory.mktemp("large")
    config = json.loads((embedded_model_path() / "config.json").read_text())
    sizes = {"hidden_size": 4096, "intermediate_size": 43700, "num_hidden_layers": 12, "num_attention_heads": 32}
    config |= sizes | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False}
    config |= {"layer_types": ["full_attention"] * 12} if "layer_types" in config else {}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_plan_shards_where_copies_do_not_fit_and_counts_parts(large):
    settings = small_settings("model.device=cuda", "rollout.max_tokens=4096").model_copy()
    source = settings.model.model_copy(update={"source": str(large), "compute_dtype": "bfloat16"})
    settings = settings.model_copy(update={"model": source}).with_origins(settings.origins)
    plan = fitted_plan(settings, int(79 * GIB))
    assert plan.fits
    assert plan.ranks == 4
    assert plan.parts["weights"] == pytest.approx(4 * 8.19e9 / plan.ranks, rel=0.01)
    assert plan.parts["optimizer"] == 2 * plan.parts["weights"]
    assert fitted_plan(settings, int(79 * GIB), 8).ranks == 8
    assert not fitted_plan(settings, int(79 * GIB), 1).fits
