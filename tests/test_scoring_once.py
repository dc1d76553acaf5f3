"""On-policy training scores a batch once: the update takes over what was scored when the batch was made, bit for bit."""

import pytest
import torch
from tiny_models import tiny_model

from gmc.scoring.passes import PackedPass
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]
GENERATOR = torch.Generator().manual_seed(0)
RESPONSES = [
    [torch.randint(46, (length,), generator=GENERATOR).tolist() for length in lengths]
    for lengths in ([5, 1, 9], [12, 3, 18], [1, 7, 0])
]
ROWS = sum(map(len, RESPONSES))


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def passes(monkeypatch):
    """Counts passes through the network; a scorer's probe is not among them when it is cleared afterwards."""
    counted, run = [], PackedPass.run
    monkeypatch.setattr(PackedPass, "run", lambda self, *given, **more: counted.append(1) or run(self, *given, **more))
    return counted


def gradient_bits(model, forward, rows):
    """The gradient of the rows' log-probs, weighted unevenly."""
    grad_BT = torch.linspace(-1, 1, forward.logp_BT.numel()).reshape(forward.logp_BT.shape).clone()
    grad_BT[[row for row in range(ROWS) if row not in rows]] = 0
    model.network.zero_grad()
    forward.backward(grad_BT)
    return [parameter.grad.clone() for parameter in model.network.parameters()]


@pytest.mark.parametrize("rows", [range(ROWS), range(7), [4, 5], [1]], ids=["all", "most", "few", "one"])
@pytest.mark.parametrize("token_budget", [10_000, 30])
def test_what_was_scored_is_taken_over_with_the_same_bits_and_the_same_gradient(model, passes, token_budget, rows):
    fresh, once = Scorer(model, token_budget=token_budget), Scorer(model, token_budget=token_budget)
    anew = fresh.forward(PROMPTS, RESPONSES)
    expected = gradient_bits(model, anew, rows)
    once.score(PROMPTS, RESPONSES, entropies=True)
    passes.clear()
    taken = once.forward([list(prompt) for prompt in PROMPTS], [list(group) for group in RESPONSES])
    assert not passes
    assert torch.equal(taken.logp_BT, anew.logp_BT)
    assert torch.equal(taken.mask_BT, anew.mask_BT)
    assert all(map(torch.equal, gradient_bits(model, taken, rows), expected))


def test_other_weights_prompts_or_responses_are_scored_anew(model, passes):
    scorer = Scorer(model)
    scorer.score(PROMPTS, RESPONSES)
    changed = [[*RESPONSES[0][:-1], [7, 8]], *RESPONSES[1:]]
    for prompts, responses in ((PROMPTS[::-1], RESPONSES), (PROMPTS, changed)):
        passes.clear()
        forward = scorer.forward(prompts, responses)
        assert len(passes) == 1
        assert torch.equal(forward.logp_BT, Scorer(model).forward(prompts, responses).logp_BT)
    with torch.no_grad():
        model.network.model.norm.weight.mul_(1.1)
    passes.clear()
    forward = scorer.forward(PROMPTS, RESPONSES)
    assert len(passes) == 1
    assert torch.equal(forward.logp_BT, Scorer(model).forward(PROMPTS, RESPONSES).logp_BT)


def test_what_is_handed_out_may_be_written_to(model):
    scorer = Scorer(model)
    scores = scorer.score(PROMPTS, RESPONSES)
    expected = scores.logp_BT.clone()
    scores.logp_BT.zero_()
    scorer.forward(PROMPTS, RESPONSES).logp_BT.zero_()
    assert torch.equal(scorer.forward(PROMPTS, RESPONSES).logp_BT, expected)
