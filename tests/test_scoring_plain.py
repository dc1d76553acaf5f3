"""Packed passes of plain networks by few products: gradients written out by hand, and short attention by batched products."""

from itertools import product

import pytest
import torch
from examples import examples, thinned
from hypothesis import given
from hypothesis import strategies as st
from test_plain_decoding import PLAIN, plain_model, random_model
from test_scoring_varlen import HEADS, KEY_HEADS, SCALE, SIZE, layout_of, literal

from gmc.models import LanguageModel
from gmc.plain import structure, trained
from gmc.scoring import plain_pass
from gmc.scoring.passes import PackedPass
from gmc.scoring.plain_pass import PlainPass, trained_structure
from gmc.scoring.scorer import Scorer
from gmc.scoring.short import SHORT_KEYS, is_short, short_attention, short_layout

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9], [10]]
RESPONSES = [[[13, 14, 15, 5], [16], []], [[17, 0, 19, 20, 21, 22], [23, 24], [3, 4, 5]]]


def literal_rows(network, vocabulary_size, temperature):
    """Row by row through the network's own forward in float64: log-probs of the tokens."""
    rows = []
    for prompt, group in zip(PROMPTS, RESPONSES, strict=True):
        for response in group:
            logits = network(torch.tensor([prompt + response])).logits[0, :, :vocabulary_size] / temperature
            logp = logits.log_softmax(-1)
            rows.append([logp[len(prompt) - 1 + step, token] for step, token in enumerate(response)])
    return rows


@pytest.mark.parametrize(("name", "temperature", "kept"), thinned(product(PLAIN, [1.0, 0.7], [True, False]), 3))
def test_log_probs_and_gradients_are_those_of_a_stock_forward_in_float64(name, temperature, kept, monkeypatch):
    monkeypatch.setattr(plain_pass, "KEPT_BYTES", plain_pass.KEPT_BYTES if kept else 0)
    model = plain_model(name)
    scorer = Scorer(model, temperature=temperature)
    assert isinstance(scorer.active_pass, PlainPass)
    current = scorer.forward(PROMPTS, RESPONSES)
    assert torch.equal(scorer.score(PROMPTS, RESPONSES).logp_BT, current.logp_BT)
    grad_BT = torch.randn(current.logp_BT.shape, generator=torch.Generator().manual_seed(1))
    model.network.zero_grad()
    current.backward(grad_BT)
    ours = {key: parameter.grad.double() for key, parameter in model.network.named_parameters()}

    model.network.double().zero_grad()
    rows = literal_rows(model.network, model.vocabulary_size, temperature)
    sum(value * grad_BT[row, step] for row, values in enumerate(rows) for step, value in enumerate(values)).backward()
    for row, values in enumerate(rows):
        assert current.logp_BT[row, : len(values)].tolist() == pytest.approx([value.item() for value in values], abs=2e-5)
    for key, parameter in model.network.named_parameters():
        assert (ours[key] - parameter.grad).abs().max() <= 2e-5 * max(1, parameter.grad.abs().max()), key


def test_ids_that_are_no_token_stay_impossible():
    model = plain_model("Qwen3")
    within = LanguageModel(model.network, model.tokenizer, "gaps", frozenset({1}), model.vocabulary_size, (3, 30))
    other = Scorer(within)
    other.active_pass = PackedPass(model.network, model.vocabulary_size, 1.0, None, False, None, (3, 30))
    responses = [[[token for token in response if token != 3] for response in group] for group in RESPONSES]
    found = []
    for scorer in (Scorer(within), other):
        model.network.zero_grad()
        current = scorer.forward(PROMPTS, responses)
        current.backward(torch.ones_like(current.logp_BT))
        entropies_BT = scorer.score(PROMPTS, responses, entropies=True).entropies_BT
        found.append([current.logp_BT, entropies_BT, *(parameter.grad for parameter in model.network.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("Llama", {"hidden_act": "gelu"}), ("Granite", {"residual_multiplier": 0.5}), ("Gemma", {})],
)
def test_other_networks_keep_their_own_modules(kind, changes):
    model = random_model(kind, **changes)
    assert trained_structure(model) is None
    assert not isinstance(Scorer(model).active_pass, PlainPass)


def test_what_differs_or_is_too_large_is_noticed(monkeypatch):
    model = plain_model("Qwen3")
    backward = trained._Gated.backward
    monkeypatch.setattr(trained._Gated, "backward", staticmethod(lambda ctx, grad: 1.01 * backward(ctx, grad)))
    assert trained_structure(model) is None
    monkeypatch.undo()
    assert trained_structure(model) is not None
    monkeypatch.setattr(structure, "COPIED_BYTES", 10)
    assert trained_structure(model) is None


@pytest.mark.parametrize("options", [{"checkpointing": True}, {"compute_dtype": torch.bfloat16}])
def test_settings_that_need_the_modules_get_them(options):
    assert type(Scorer(plain_model("Llama"), **options).active_pass) is PackedPass


@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.lists(st.integers(0, 12), min_size=1, max_size=5).filter(any)), min_size=1, max_size=4
    ),
    st.integers(0, 10**6),
)
@examples(60)
def test_short_attention_and_its_gradients_are_those_of_plain_attention(groups, seed):
    prompts, responses = zip(*groups, strict=True)
    layout = layout_of(prompts, responses)
    assert is_short(layout)
    tokens = sum(prompts) + sum(max(length - 1, 0) for lengths in responses for length in lengths)
    generator = torch.Generator().manual_seed(seed)
    leaves = [torch.randn(tokens, heads, SIZE, generator=generator) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    grad = torch.randn(tokens, HEADS, SIZE, generator=generator)
    ours = [leaf.clone().requires_grad_() for leaf in leaves]
    output = short_attention(*ours, short_layout(layout, HEADS, KEY_HEADS), SCALE)
    output.backward(grad)
    wanted = [leaf.double().requires_grad_() for leaf in leaves]
    expected = literal(*wanted, prompts, responses)
    expected.backward(grad.double())
    torch.testing.assert_close(output, expected.float(), atol=2e-5, rtol=0)
    for found, leaf in zip(ours, wanted, strict=True):
        torch.testing.assert_close(found.grad, leaf.grad.float(), atol=5e-5, rtol=0)


@pytest.mark.parametrize(("prompt", "response", "short"), [(64, SHORT_KEYS - 63, True), (64, SHORT_KEYS - 62, False)])
def test_what_is_short(prompt, response, short):
    """The last token of a response is never read."""
    assert is_short(layout_of([3, prompt], [[2], [response]])) is short


def test_segments_of_one_batch_are_of_similar_length():
    """Three prompts of 4; of the responses 20, 20 and 19 tokens are read, 8 and 7, 2, and 1: less than 0.7 of 2."""
    layout = short_layout(layout_of([4, 4, 4], [[21, 20, 9], [8, 3, 0], [1, 2, 21]]), HEADS, KEY_HEADS)
    assert [batch.segments for batch in layout.batches] == [3, 3, 2, 1, 1]
