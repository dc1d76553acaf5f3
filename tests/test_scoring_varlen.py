"""Attention for GPUs by the variable-length kernel, on a CPU double of its two operators."""

import pytest
import torch
import varlen_double
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny_model
from torch._subclasses.fake_tensor import FakeTensorMode

from gmc.scoring import attention, varlen
from gmc.scoring.packing import pack
from gmc.scoring.plan import make_plan
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

HEADS, KEY_HEADS, SIZE, SCALE = 4, 2, 8, 0.3


@pytest.fixture(scope="module")
def real_operators():
    return varlen.operators


@pytest.fixture(autouse=True, scope="module")
def doubles(real_operators):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "operators", lambda: (varlen_double.forward, varlen_double.backward))
        yield


def layout_of(prompt_lengths_P, response_lengths_PG):
    (micro_batch,) = make_plan(prompt_lengths_P, response_lengths_PG, 10**9)
    prompts = [[1] * length for length in prompt_lengths_P]
    responses = [[[2] * length for length in lengths_G] for lengths_G in response_lengths_PG]
    return pack(micro_batch, prompts, responses, torch.device("cpu")).layout


def literal(query, key, value, prompt_lengths_P, response_lengths_PG):
    """Each prompt alone and each response behind its own copy of the prompt, in float64: what every row attends to."""
    rows, first = [], 0
    for length in prompt_lengths_P:
        rows.append(list(range(first, first + length)))
        first += length
    outputs = [one(query, key, value, prompt)[-len(prompt) :] for prompt in rows]
    for prompt, lengths_G in zip(rows, response_lengths_PG, strict=True):
        for length in lengths_G:
            read = list(range(first, first + max(length - 1, 0)))
            first += len(read)
            if read:
                outputs.append(one(query, key, value, prompt + read)[-len(read) :])
    return torch.cat(outputs)


def one(query, key, value, rows):
    q, k, v = query[rows], key[rows].repeat_interleave(2, 1), value[rows].repeat_interleave(2, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * SCALE
    hidden = torch.ones(len(rows), len(rows), dtype=torch.bool).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)), min_size=1, max_size=4
    ),
    st.integers(0, 10**6),
)
@examples(60)
def test_outputs_and_gradients_are_those_of_plain_attention(groups, seed):
    prompts, responses = zip(*groups, strict=True)
    layout = layout_of(prompts, responses)
    tokens = sum(prompts) + sum(max(length - 1, 0) for lengths in responses for length in lengths)
    generator = torch.Generator().manual_seed(seed)
    leaves = [torch.randn(tokens, heads, SIZE, generator=generator) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    grad = torch.randn(tokens, HEADS, SIZE, generator=generator)
    ours = [leaf.clone().requires_grad_() for leaf in leaves]
    output = varlen.varlen_attention(*ours, layout.spans, SCALE)
    output.backward(grad)
    wanted = [leaf.double().requires_grad_() for leaf in leaves]
    expected = literal(*wanted, prompts, responses)
    expected.backward(grad.double())
    torch.testing.assert_close(output, expected.float(), atol=2e-5, rtol=0)
    for found, leaf in zip(ours, wanted, strict=True):
        torch.testing.assert_close(found.grad, leaf.grad.float(), atol=5e-5, rtol=0)


@pytest.mark.parametrize("token_budget", [12, 4096])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_network_scored_with_it_equals_the_cpu_path(token_budget, checkpointing):
    prompts = [[5, 6, 7, 8, 9], [10], [11, 12, 13, 14, 15, 16]]
    generator = torch.Generator().manual_seed(3)
    lengths_PG = [[4, 1, 9], [0, 3, 3], [1, 1, 1]]
    responses = [[torch.randint(3, 40, (length,), generator=generator).tolist() for length in row] for row in lengths_PG]
    weights = torch.randn(9, 9, generator=generator)
    found = []
    for kernel in ("cpu", "varlen"):
        model = tiny_model()
        with pytest.MonkeyPatch.context() as patch:
            if kernel == "varlen":
                patch.setattr(attention, "flash_kernels", lambda: None)
                patch.setattr(attention, "runs_varlen", lambda *_: True)
                patch.setattr(attention, "repeated_prompt_attention", None)
            scorer = Scorer(model, token_budget=token_budget, checkpointing=checkpointing)
            assert scorer.shares_prompts
            forward = scorer.forward(prompts, responses)
            forward.backward(weights)
        found.append((forward.logp_BT, [parameter.grad for parameter in model.network.parameters()]))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=0)
    for ours, theirs in zip(found[1][1], found[0][1], strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("device", "dtype", "size", "capability", "runs"),
    [
        ("cuda", torch.bfloat16, 128, (9, 0), True),
        ("cuda", torch.float16, 64, (8, 0), True),
        ("cuda", torch.float32, 128, (9, 0), False),
        ("cuda", torch.bfloat16, 264, (9, 0), False),
        ("cuda", torch.bfloat16, 36, (9, 0), False),
        ("cuda", torch.bfloat16, 128, (7, 5), False),
        ("cuda", torch.bfloat16, 128, None, False),
        ("cpu", torch.bfloat16, 128, None, False),
    ],
)
def test_where_the_kernel_is_used(device, dtype, size, capability, runs):
    assert varlen.runs_varlen(device, dtype, size, capability) is runs


def test_torchs_own_operators_take_the_arguments_that_are_used(real_operators, monkeypatch):
    """On fake tensors, which check signature and shapes without a GPU."""
    monkeypatch.setattr(varlen, "operators", real_operators)
    layout = layout_of([3, 2], [[4, 2], [1, 5]])
    with FakeTensorMode(allow_non_fake_inputs=True):
        query = torch.empty(13, HEADS, SIZE, dtype=torch.bfloat16, requires_grad=True)
        key, value = (torch.empty(13, KEY_HEADS, SIZE, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        output = varlen.varlen_attention(query, key, value, layout.spans, SCALE)
        output.sum().backward()
    assert output.shape == query.shape == query.grad.shape
    assert key.grad.shape == value.grad.shape == key.shape
