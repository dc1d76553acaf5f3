"""Micro-batches that go forward and back one by one: the same bits as two passes, each run once, one graph at a time."""

import weakref

import pytest
import torch
from tiny_models import tiny_model

from gmc.parameters.whole import Whole
from gmc.ranks import Ranks
from gmc.scoring import room
from gmc.scoring.passes import PackedPass
from gmc.scoring.plan import largest_first, linked
from gmc.scoring.room import Room
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

GENERATOR = torch.Generator().manual_seed(0)
LENGTHS = [[5, 2, 9], [12, 3, 18], [4, 7, 0], [6, 6, 6]]
PROMPTS = [torch.randint(46, (length,), generator=GENERATOR).tolist() for length in (5, 1, 3, 4)]
RESPONSES = [[torch.randint(46, (length,), generator=GENERATOR).tolist() for length in lengths] for lengths in LENGTHS]
BUDGET = 40
"""Whole groups fit: [0], [1], [2, 3]."""
SPLIT = 25
"""Groups 1 and 3 are split, and a micro-batch holds parts of two groups."""


class Graphs:
    """Runs and backward passes in their order, and how many graphs there were at once."""

    def __init__(self, monkeypatch):
        self.events, self.most, self._alive = [], 0, []
        run, backward = PackedPass.run, torch.autograd.backward

        def recorded(one, micro_batch, *arguments, **keywords):
            scored = run(one, micro_batch, *arguments, **keywords)
            self.events.append("forward")
            if scored.logp_R.requires_grad:
                self._alive.append(weakref.ref(scored.logp_R))
                self.most = max(self.most, sum(each() is not None for each in self._alive))
            return scored

        def recorded_backward(*arguments):
            self.events.append("backward")
            backward(*arguments)

        monkeypatch.setattr(PackedPass, "run", recorded)
        monkeypatch.setattr(torch.autograd, "backward", recorded_backward)

    def clear(self):
        self.events, self.most, self._alive = [], 0, []


@pytest.fixture
def graphs(monkeypatch):
    return Graphs(monkeypatch)


def by_group(logp_BT, known_B=None):
    """A gradient that depends on all log-probs of the row's group and on nothing else."""
    total_P1 = logp_BT.reshape(len(PROMPTS), -1).sum(1, keepdim=True)
    return (logp_BT.reshape(len(PROMPTS), -1) * total_P1 / 1000 + 0.1).reshape(logp_BT.shape)


def groups_of(plan):
    return [{piece.group for piece in micro_batch.pieces} for micro_batch in plan]


def gradients(model):
    return [parameter.grad.clone() for parameter in model.network.parameters()]


def require_close(found, expected):
    """But for rounding, beside each tensor's largest value."""
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).abs().max()) <= 2e-6 * float(other.abs().max())


def two_passes(model, scorer, grad=by_group):
    model.network.zero_grad()
    forward = scorer.forward(PROMPTS, RESPONSES)
    forward.backward(grad(forward.logp_BT))
    return forward.logp_BT, gradients(model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_one_pass_gives_the_bits_of_two_with_one_graph_at_a_time(graphs, checkpointing):
    model = tiny_model()
    scorer = Scorer(model, token_budget=BUDGET, checkpointing=checkpointing)
    parts = len(scorer.steps(PROMPTS, RESPONSES).plan)
    assert parts == 3
    logp_BT, expected = two_passes(model, scorer)
    graphs.clear()
    model.network.zero_grad()
    once = scorer.forward_once(PROMPTS, RESPONSES, weigh=by_group)
    assert once.has_passed(by_group(once.logp_BT))
    assert graphs.events == ["forward", "backward"] * parts
    assert graphs.most == 1
    assert torch.equal(once.logp_BT, logp_BT)
    assert all(map(torch.equal, gradients(model), expected))


def test_a_gradient_that_turns_out_different_is_noticed():
    model = tiny_model()
    once = Scorer(model, token_budget=BUDGET).forward_once(PROMPTS, RESPONSES, weigh=by_group)
    other_BT = by_group(once.logp_BT)
    other_BT[4, 2] += 1e-7
    assert not once.has_passed(other_BT)
    other_BT = by_group(once.logp_BT)
    other_BT[~once.mask_BT] = 5.0
    assert once.has_passed(other_BT), "padding belongs to nobody"


def test_micro_batches_that_share_a_group_wait_for_each_other(graphs, monkeypatch):
    model = tiny_model()
    scorer = Scorer(model, token_budget=SPLIT)
    plan = scorer.steps(PROMPTS, RESPONSES).plan
    assert max(len(part) for part in linked(groups_of(plan), largest_first(plan))) > 1
    _, expected = two_passes(model, scorer)
    for free, runs_again in ((2**40, False), (0, True)):
        monkeypatch.setattr(room, "free_bytes", lambda device, free=free: free)
        graphs.clear()
        model.network.zero_grad()
        once = scorer.forward_once(PROMPTS, RESPONSES, weigh=by_group)
        assert once.has_passed(by_group(once.logp_BT))
        assert (graphs.events.count("forward") > len(plan)) == runs_again
        assert (graphs.most == 1) == runs_again
        require_close(gradients(model), expected)


@pytest.mark.parametrize("budget", [BUDGET, SPLIT])
def test_graphs_of_a_whole_batch_are_kept_as_memory_allows_with_the_same_bits(graphs, monkeypatch, budget):
    """Rows without gradient included: what is run does not depend on what was free."""
    model = tiny_model()
    scorer = Scorer(model, token_budget=budget)
    plan = scorer.steps(PROMPTS, RESPONSES).plan

    def grad(logp_BT):
        grad_BT = logp_BT * logp_BT.mean()
        grad_BT[[2, 3, 8, 9]] = 0
        return grad_BT

    results, counts = [], []
    for fitting in (len(plan), 2, 1):
        monkeypatch.setattr(Room, "fitting", lambda self, tokens, fitting=fitting: fitting)
        graphs.clear()
        model.network.zero_grad()
        once = scorer.forward_once(PROMPTS, RESPONSES, weigh=None)
        assert once.passed_BT is None
        once.backward(grad(once.logp_BT))
        results.append(gradients(model))
        counts.append((graphs.events.count("forward"), graphs.most))
    assert all(map(torch.equal, results[0], results[1]))
    assert all(map(torch.equal, results[0], results[2]))
    assert [count[1] for count in counts] == [len(plan), 2, 1]
    require_close(results[0], two_passes(model, scorer, grad)[1])


def test_a_single_micro_batch_is_not_weighed_twice(graphs):
    scorer = Scorer(tiny_model())
    graphs.clear()
    once = scorer.forward_once(PROMPTS, RESPONSES, weigh=lambda *_: pytest.fail("asked for weights that come later anyway"))
    once.backward(by_group(once.logp_BT))
    assert graphs.events == ["forward", "backward"]


class OneOfTwo(Ranks):
    """A rank whose sums are its own alone."""

    def add(self, tensors):
        pass


def test_each_rank_sends_back_its_own_groups_and_the_sum_is_whole():
    model = tiny_model()
    logp_BT, expected = two_passes(model, Scorer(model, token_budget=BUDGET))
    passed, shares = [], []
    for rank in range(2):
        scorer = Scorer(model, token_budget=20, parameters=Whole(model, OneOfTwo(rank, 2)))
        model.network.zero_grad()
        passed.append(scorer.forward_once(PROMPTS, RESPONSES, weigh=by_group))
        shares.append(gradients(model))
    whole_BT = passed[0].logp_BT + passed[1].logp_BT
    assert all(once.passed_BT is not None and once.has_passed(by_group(whole_BT)) for once in passed)
    torch.testing.assert_close(whole_BT, logp_BT, atol=2e-5, rtol=0)
    require_close([a + b for a, b in zip(*shares, strict=True)], expected)


def test_parts_have_no_group_in_common():
    chained = [{0}, {1, 2}, {2, 3}, {4}, {3, 5}, {6}]
    assert linked(chained, [1, 0, 2, 3, 4, 5]) == [[1, 2, 4], [0], [3], [5]]
    assert linked([], []) == []
    assert linked([{0}, {1}, {2, 3}, {0, 1}], [0, 1, 2, 3]) == [[0, 1, 3], [2]]


def test_what_a_graph_keeps_is_counted_and_half_of_what_is_free_is_used(monkeypatch):
    layer = torch.nn.Linear(100, 50)
    counted = Room(layer)
    x = torch.randn(8, 100, requires_grad=True)
    with counted.counting():
        y = layer(x).sigmoid()
    y.sum().backward()
    assert layer.weight.grad is not None
    size = 4 * (8 * 100 + 8 * 50)  # the input and the output of the sigmoid; the weight is the network's own
    for free, fitting in ((0, 1), (2 * size, 2), (4 * size, 3)):
        monkeypatch.setattr(room, "free_bytes", lambda device, free=free: free)
        assert counted.fitting([8, 8, 8]) == fitting
    monkeypatch.setattr(room, "free_bytes", lambda device: size)
    assert counted.fitting([8, 16, 4]) == 1, "in order, so that what is kept goes back first whatever is free"


def test_free_memory_is_the_least_of_machine_and_container(tmp_path, monkeypatch):
    meminfo, limit, used = tmp_path / "meminfo", tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(room, "MEMINFO", meminfo)
    monkeypatch.setattr(room, "CGROUPS", ((limit, used),))
    assert room.free_bytes(torch.device("cpu")) == 0
    meminfo.write_text("MemTotal:  2000 kB\nMemAvailable:   1000 kB\n")
    assert room.free_bytes(torch.device("cpu")) == 1000 * 1024
    used.write_text("5000\n")
    for text, expected in (("max\n", 1000 * 1024), ("9000\n", 4000), ("100\n", 0)):
        limit.write_text(text)
        assert room.free_bytes(torch.device("cpu")) == expected
