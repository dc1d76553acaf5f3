"""Scoring and sampling on each device there is, against a stock forward pass on the same device."""

from types import SimpleNamespace

import pytest
import torch
from tiny_models import tiny_model

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.scoring import attention, short
from gmc.scoring.head import chunk_rows
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9], [10], [11, 12, 13, 14, 15, 16]]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module", params=DEVICES)
def model(request):
    model = tiny_model()
    model.network.to(request.param)
    return model


def refuse_grouped_heads(operator):
    def forward(query, key, value, *rest, scale):
        if query.shape[1] != key.shape[1]:
            raise RuntimeError("query and key differ in heads")
        return operator(query, key, value, *rest, scale=scale)

    return forward


DOUBLES = {
    "no forward": ("FORWARD", None),
    "another signature": (
        "FORWARD",
        lambda operator: lambda query, key, value, causal: operator(query, key, value, 0.0, causal),
    ),
    "other numbers": ("FORWARD", lambda operator: lambda *tensors, scale: operator(*tensors, scale=2 * scale)),
    "one head a key": ("FORWARD", refuse_grouped_heads),
    "causal only": ("FORWARD", lambda operator: lambda *head, scale: operator(*head[:4], True, scale=scale)),
    "another log-sum-exp": ("FORWARD", lambda op: lambda *head, scale: (op(*head, scale=scale)[0], head[0].exp2().sum(-1))),
    "no backward": ("BACKWARD", None),
    "other gradients": ("BACKWARD", lambda operator: lambda *head, scale: operator(*head, scale=scale)[::-1]),
}


@pytest.fixture
def kernel(request, monkeypatch):
    """torch with its private flash kernel, and releases to come: without it, or with one that changed."""
    if request.param in DOUBLES:
        which, change = DOUBLES[request.param]
        operator = getattr(torch.ops.aten, getattr(attention, which))
        monkeypatch.setattr(attention, which, "gmc_test_double")
        if change is not None:
            monkeypatch.setattr(torch.ops.aten, "gmc_test_double", change(operator), raising=False)
    monkeypatch.setattr(short, "SHORT_KEYS", 0)
    attention.flash_kernels.cache_clear()
    assert (attention.flash_kernels() is None) == (request.param != "private kernel")
    yield request.param
    attention.flash_kernels.cache_clear()


def test_the_kernel_is_found_whatever_the_caller_has_set():
    attention.flash_kernels.cache_clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            assert attention.flash_kernels() is not None
    finally:
        torch.set_default_dtype(torch.float32)
        attention.flash_kernels.cache_clear()


@pytest.fixture(scope="module")
def responses(model):
    groups = TransformersEngine(model).generate(PROMPTS, group_size=4, sampling=Sampling(max_tokens=24), seeds=[1, 2, 3])
    return [[completion.token_ids for completion in group] for group in groups]


def literal_logp(model, responses):
    rows = []
    width = max(len(response) for group in responses for response in group)
    for prompt, group in zip(PROMPTS, responses, strict=True):
        for response in group:
            logits = model.network(torch.tensor([prompt + response], device=model.device)).logits[0, len(prompt) - 1 : -1]
            logp = logits[:, : model.vocabulary_size].float().log_softmax(-1)
            chosen = logp.gather(1, torch.tensor(response, device=model.device)[:, None]).squeeze(1)
            rows.append(torch.nn.functional.pad(chosen, (0, width - len(response))))
    return torch.stack(rows)


@pytest.fixture(scope="module")
def stock(model, responses):
    """Log-probs by stock forward passes, a gradient of them, and what it is for each parameter."""
    expected_BT = literal_logp(model, responses)
    grad_BT = torch.randn(expected_BT.shape, generator=torch.Generator().manual_seed(0)).to(model.device)
    model.network.zero_grad()
    expected_BT.backward(grad_BT)
    return expected_BT.detach(), grad_BT, {name: one.grad.clone() for name, one in model.network.named_parameters()}


def require_stock(model, responses, stock, **settings):
    expected_BT, grad_BT, expected = stock
    scorer = Scorer(model, **settings)
    assert scorer.shares_prompts
    current = scorer.forward(PROMPTS, responses)
    assert torch.equal(current.logp_BT, scorer.score(PROMPTS, responses).logp_BT)
    assert current.logp_BT.cpu() == pytest.approx(expected_BT.cpu(), abs=1e-4)
    model.network.zero_grad()
    current.backward(grad_BT)
    largest = max(gradient.norm() for gradient in expected.values())
    for name, parameter in model.network.named_parameters():
        assert (parameter.grad - expected[name]).norm() <= 1e-4 * max(expected[name].norm(), largest / 10), name


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("token_budget", [4096, 40])
@pytest.mark.parametrize("kernel", ["private kernel", "no forward"], indirect=True)
def test_scores_and_gradients_equal_the_stock_forward(model, kernel, responses, stock, token_budget, checkpointing):
    require_stock(model, responses, stock, token_budget=token_budget, checkpointing=checkpointing)


@pytest.mark.parametrize("kernel", [name for name in DOUBLES if name != "no forward"], indirect=True)
def test_a_kernel_that_changed_is_not_used(model, kernel, responses, stock):
    require_stock(model, responses, stock)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_bfloat16_scores_are_the_same_bits_with_and_without_a_graph(model, responses, checkpointing):
    precision = torch.get_float32_matmul_precision()
    scorer = Scorer(model, compute_dtype=torch.bfloat16, checkpointing=checkpointing)
    current = scorer.forward(PROMPTS, responses)
    assert torch.equal(current.logp_BT, scorer.score(PROMPTS, responses).logp_BT)
    current.backward(torch.ones_like(current.logp_BT))
    assert all(parameter.grad.isfinite().all() for parameter in model.network.parameters())
    assert torch.get_float32_matmul_precision() == precision


def test_the_engine_reports_what_the_trainer_computes(model):
    engine = TransformersEngine(model)
    completions = engine.generate(PROMPTS, group_size=4, sampling=Sampling(max_tokens=24), seeds=[4, 5, 6])
    scores = Scorer(model).score(PROMPTS, [[completion.token_ids for completion in group] for group in completions])
    reported = [completion.logprobs for group in completions for completion in group]
    for row, logprobs in zip(scores.logp_BT.cpu(), reported, strict=True):
        assert row[: len(logprobs)] == pytest.approx(torch.tensor(logprobs), abs=1e-4)


@pytest.mark.parametrize(("device", "rows"), [("cuda", 1766), ("cpu", 110), ("mps", 110)])
def test_a_chunk_of_the_head_is_sized_for_its_device(device, rows):
    """1 GiB of float32 logits on a GPU, 64 MiB elsewhere, with the vocabulary of Qwen3."""
    assert chunk_rows(SimpleNamespace(device=torch.device(device), shape=(151936, 8))) == rows


def test_a_chunk_of_the_head_has_some_rows_however_large_the_vocabulary():
    assert chunk_rows(SimpleNamespace(device=torch.device("cpu"), shape=(10**8, 8))) == 16
