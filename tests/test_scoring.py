"""Log-probs and their gradients: against the stock forward, and unchanged by how the batch is split, padded or ordered."""

from itertools import product

import pytest
import torch
from examples import examples, thinned
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny_model

from gmc.errors import UsageError
from gmc.scoring import attention, scorer, short
from gmc.scoring.passes import PackedPass
from gmc.scoring.plain_pass import PlainPass
from gmc.scoring.scorer import Scorer

PROMPTS = [[5, 6, 7, 8, 9], [10], [11, 12, 13, 14, 15, 16, 17, 18]]
LENGTHS = [[5, 1, 9, 0], [20, 3, 18, 17], [1, 1, 0, 1]]
ROW_WITHOUT_GRADIENT = 6


ATTENTION = ["products", "flash parts", "public operator"]
LAYERS = ["few products", "own modules", "recomputed modules"]
WAYS = thinned(product(ATTENTION, LAYERS, [False, True], [10_000, 60, 30, 1]), 5)


def random_responses(lengths_PG, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randint(46, (length,), generator=generator).tolist() for length in group] for group in lengths_PG]


RESPONSES = random_responses(LENGTHS)


def literal_logp(model, prompts, responses, temperature):
    """Row by row: stock forward over prompt and response, all logits, plain log-softmax over the tokenizer's ids."""
    width = max(len(response) for group in responses for response in group)
    rows = []
    for prompt, group in zip(prompts, responses, strict=True):
        for response in group:
            logits = model.network(torch.tensor([prompt + response])).logits[0, :, : model.vocabulary_size] / temperature
            logp = logits.log_softmax(-1)
            chosen = [logp[len(prompt) - 1 + step, token] for step, token in enumerate(response)]
            rows.append(
                torch.nn.functional.pad(torch.stack(chosen) if chosen else logp.new_zeros(0), (0, width - len(response)))
            )
    return torch.stack(rows)


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.network.named_parameters()}


def assert_same_gradients(ours, theirs, tolerance=2e-5):
    largest = max(expected.norm() for expected in theirs.values())
    for name, expected in theirs.items():
        # What must cancel to zero (a query that has one key) leaves rounding of the size of the others.
        assert (ours[name] - expected).norm() <= tolerance * max(expected.norm(), largest / 10), name


@pytest.fixture(scope="module")
def reference():
    model = tiny_model()
    logp_BT = literal_logp(model, PROMPTS, RESPONSES, 0.7)
    grad_BT = torch.randn(logp_BT.shape, generator=torch.Generator().manual_seed(1))
    grad_BT[ROW_WITHOUT_GRADIENT] = 0
    model.network.zero_grad()
    logp_BT.backward(grad_BT)
    return model, logp_BT.detach(), grad_BT, gradients(model)


@pytest.mark.unit
@pytest.mark.parametrize(("attention_by", "layers_by", "share_prompts", "token_budget"), WAYS)
def test_scores_and_gradients_equal_the_stock_forward(
    reference, monkeypatch, attention_by, layers_by, share_prompts, token_budget
):
    model, expected_BT, grad_BT, expected = reference
    if attention_by != "products":
        monkeypatch.setattr(short, "SHORT_KEYS", 0)
    if attention_by == "public operator":
        monkeypatch.setattr(attention._PackedAttention, "apply", attention.repeated_prompt_attention)
    if layers_by == "own modules":
        monkeypatch.setattr(scorer, "trained_structure", lambda model: None)
    checkpointing = layers_by == "recomputed modules"
    ours = Scorer(model, temperature=0.7, token_budget=token_budget, share_prompts=share_prompts, checkpointing=checkpointing)
    assert ours.shares_prompts == share_prompts
    assert isinstance(ours.active_pass, PlainPass) == (layers_by == "few products")
    current = ours.forward(PROMPTS, RESPONSES)
    assert current.logp_BT == pytest.approx(expected_BT, abs=2e-5)
    assert current.mask_BT.sum(-1).tolist() == [length for group in LENGTHS for length in group]
    model.network.zero_grad()
    current.backward(grad_BT)
    assert_same_gradients(gradients(model), expected)
    assert not any(module.training for module in model.network.modules())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_modules_change_nothing_but_rounding(reference, checkpointing):
    model, logp_BT, grad_BT, expected = reference
    plain = Scorer(model, temperature=0.7).score(PROMPTS, RESPONSES)
    scorer = Scorer(model, temperature=0.7, compiled=True, checkpointing=checkpointing)
    forward = scorer.forward(PROMPTS, RESPONSES)
    assert torch.equal(scorer.score(PROMPTS, RESPONSES).logp_BT, forward.logp_BT)
    torch.testing.assert_close(forward.logp_BT, logp_BT, atol=2e-5, rtol=0)
    model.network.zero_grad()
    forward.backward(grad_BT)
    assert_same_gradients(gradients(model), expected)
    assert torch.equal(Scorer(model, temperature=0.7).score(PROMPTS, RESPONSES).logp_BT, plain.logp_BT)


@pytest.mark.unit
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("token_budget", [10_000, 30])
@pytest.mark.parametrize("compute_dtype", [None, torch.bfloat16])
def test_scoring_without_a_graph_gives_the_same_bits_as_the_forward_that_trains(checkpointing, token_budget, compute_dtype):
    model = tiny_model()
    scorer = Scorer(model, temperature=0.7, token_budget=token_budget, checkpointing=checkpointing, compute_dtype=compute_dtype)
    current = scorer.forward(PROMPTS, RESPONSES)
    behavior = scorer.score(PROMPTS, RESPONSES, entropies=True)
    assert torch.equal(behavior.logp_BT, current.logp_BT)
    assert torch.equal(behavior.mask_BT, current.mask_BT)
    assert torch.equal(behavior.logp_BT, scorer.score(PROMPTS, RESPONSES).logp_BT)


@pytest.mark.unit
def test_the_activation_memory_setting_really_recomputes(reference, monkeypatch):
    """Checkpointing must neither be dropped nor drop the prompt: the layers run again in backward, with the same result."""
    model, _, grad_BT, expected = reference
    monkeypatch.setattr(scorer, "trained_structure", lambda model: None)
    calls = []
    handle = model.network.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    for checkpointing, runs in ((False, 1), (True, 2)):
        ours = Scorer(model, temperature=0.7, checkpointing=checkpointing)
        calls.clear()
        model.network.zero_grad()
        ours.forward(PROMPTS, RESPONSES).backward(grad_BT)
        assert len(calls) == runs
        assert_same_gradients(gradients(model), expected)
    handle.remove()


@examples(12)
@given(
    lengths=st.lists(st.lists(st.integers(0, 12), min_size=3, max_size=3), min_size=1, max_size=4).filter(
        lambda groups: any(map(sum, groups))
    ),
    prompt_lengths=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    budget=st.integers(1, 60),
    seed=st.integers(0, 99),
)
@pytest.mark.unit
def test_splitting_padding_and_order_change_nothing(lengths, prompt_lengths, budget, seed):
    model = tiny_model()
    prompts = random_responses([prompt_lengths[: len(lengths)]], seed + 1)[0]
    responses = random_responses(lengths, seed)
    whole, split = Scorer(model), Scorer(model, token_budget=budget)
    expected = whole.forward(prompts, responses)
    grad_BT = torch.randn(expected.logp_BT.shape, generator=torch.Generator().manual_seed(seed))
    model.network.zero_grad()
    expected.backward(grad_BT)
    expected_gradients = gradients(model)

    parts = split.forward(prompts, responses)
    assert parts.logp_BT == pytest.approx(expected.logp_BT, abs=2e-5)
    model.network.zero_grad()
    parts.backward(grad_BT)
    assert_same_gradients(gradients(model), expected_gradients)

    order = [2, 0, 1]
    reordered = split.forward(prompts[::-1], [[group[sample] for sample in order] for group in responses[::-1]])
    rows = [3 * group + sample for group in reversed(range(len(prompts))) for sample in order]
    assert reordered.logp_BT == pytest.approx(expected.logp_BT[rows], abs=2e-5)
    model.network.zero_grad()
    reordered.backward(grad_BT[rows])
    assert_same_gradients(gradients(model), expected_gradients)


@pytest.fixture
def ran(monkeypatch):
    """The micro-batches that a packed pass runs, each as [(group, samples), …]."""
    runs = []
    run = PackedPass.run

    def recorded(self, micro_batch, *arguments, **keywords):
        runs.append([(piece.group, piece.samples) for piece in micro_batch.pieces])
        return run(self, micro_batch, *arguments, **keywords)

    monkeypatch.setattr(PackedPass, "run", recorded)
    return runs


@pytest.mark.unit
def test_rows_without_gradient_are_not_run_again(ran):
    model = tiny_model()
    scorer = Scorer(model, token_budget=30)
    assert len(scorer.steps(PROMPTS, RESPONSES).plan) > 2
    current = scorer.forward(PROMPTS, RESPONSES)
    ran.clear()
    grad_BT = torch.zeros_like(current.logp_BT)
    grad_BT[5] = 1
    grad_BT[3] = 7  # An empty response: its gradient is at padding only and belongs to nobody.
    current.backward(grad_BT)
    assert ran == [[(1, (1,))]]


@pytest.mark.unit
def test_a_batch_without_gradient_runs_nothing(ran):
    model = tiny_model()
    for token_budget in (30, 10_000):
        current = Scorer(model, token_budget=token_budget).forward(PROMPTS, RESPONSES)
        ran.clear()
        current.backward(torch.zeros_like(current.logp_BT))
        assert not ran
    assert all(parameter.grad is None for parameter in model.network.parameters())


@pytest.mark.unit
def test_one_micro_batch_is_run_forward_once(ran):
    scorer = Scorer(tiny_model())
    ran.clear()
    current = scorer.forward(PROMPTS, RESPONSES)
    current.backward(torch.ones_like(current.logp_BT))
    assert len(ran) == 1


@pytest.mark.unit
def test_weights_may_be_lent_out_between_forward_and_backward(reference):
    """As for an anchor policy: other weights are copied in, used, and the current ones copied back."""
    model, _, grad_BT, expected = reference
    scorer = Scorer(model, temperature=0.7)
    current = scorer.forward(PROMPTS, RESPONSES)
    kept = {name: parameter.detach().clone() for name, parameter in model.network.named_parameters()}
    for weights in (tiny_model(seed=5).weights(), kept):
        with torch.no_grad():
            for name, parameter in model.network.named_parameters():
                parameter.copy_(weights[name])
        scorer.score(PROMPTS, RESPONSES)
    model.network.zero_grad()
    current.backward(grad_BT)
    assert_same_gradients(gradients(model), expected)


@pytest.mark.unit
def test_few_rows_with_gradient_are_run_again_rather_than_all_backward(reference, ran):
    model = reference[0]
    grad_BT = torch.zeros_like(reference[2])
    grad_BT[[2, 4]] = reference[2][[2, 4]]
    results = []
    for token_budget in (10_000, 1):
        current = Scorer(model, temperature=0.7, token_budget=token_budget).forward(PROMPTS, RESPONSES)
        ran.clear()
        model.network.zero_grad()
        current.backward(grad_BT)
        results.append(gradients(model))
        assert ran[0] == ([(0, (2,)), (1, (0,))] if token_budget > 1 else [(0, (2,))])
    assert_same_gradients(*results)


@pytest.mark.unit
def test_a_batch_of_empty_responses_is_legal():
    scorer = Scorer(tiny_model())
    current = scorer.forward([[5], [6, 7]], [[[], []], [[], []]])
    assert current.logp_BT.shape[0] == 4
    assert not current.mask_BT.any()
    current.backward(torch.ones_like(current.logp_BT))
    assert scorer.score([[5]], [[[]]], entropies=True).entropies_BT.sum() == 0


@pytest.mark.unit
def test_gradients_accumulate_over_batches(reference):
    model, _, grad_BT, expected = reference
    scorer = Scorer(model, temperature=0.7)
    model.network.zero_grad()
    for _ in range(2):
        scorer.forward(PROMPTS, RESPONSES).backward(grad_BT)
    assert_same_gradients(gradients(model), {name: 2 * value for name, value in expected.items()})


@pytest.mark.unit
def test_entropies_are_those_of_the_whole_distribution(reference):
    model = reference[0]
    scores = Scorer(model, temperature=0.7).score(PROMPTS, RESPONSES, entropies=True)
    row = 0
    for prompt, group in zip(PROMPTS, RESPONSES, strict=True):
        for response in group:
            with torch.no_grad():
                logits = model.network(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 :, : model.vocabulary_size]
            probabilities = (logits.double() / 0.7).softmax(-1)[: len(response)]
            expected = -(probabilities * probabilities.log()).sum(-1)
            assert scores.entropies_BT[row, : len(response)].double() == pytest.approx(expected, abs=1e-4)
            assert not scores.entropies_BT[row, len(response) :].any()
            row += 1


@pytest.mark.unit
def test_bfloat16_is_near_float32_and_leaves_float32_gradients(reference):
    model, expected_BT, grad_BT, expected = reference
    current = Scorer(model, temperature=0.7, compute_dtype=torch.bfloat16).forward(PROMPTS, RESPONSES)
    assert current.logp_BT.dtype == torch.float32
    difference_BT = (current.logp_BT - expected_BT).abs()
    assert 1e-4 < difference_BT.max() < 0.5
    model.network.zero_grad()
    current.backward(grad_BT)
    for name, value in gradients(model).items():
        assert value.dtype == torch.float32
        assert (value - expected[name]).norm() < 0.1 * expected[name].norm(), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[]], [[[5]]]), "prompt 0 is empty"),
        (([[5]], [[[5]], [[6]]]), "1 prompts, 2 groups"),
        (([[5], [6]], [[[5]], [[6], [7]]]), r"groups of \[1, 2\]"),
    ],
)
@pytest.mark.unit
def test_bad_batches_are_one_clear_line(arguments, message):
    scorer = Scorer(tiny_model())
    with pytest.raises(UsageError, match=message):
        scorer.score(*arguments)
    with pytest.raises(UsageError, match=message):
        scorer.forward(*arguments)


@pytest.mark.unit
def test_a_policy_needs_a_temperature():
    with pytest.raises(UsageError, match="temperature = 0"):
        Scorer(tiny_model(), temperature=0)
