"""Ranks in lockstep go forward and back once for each step, groups cut between them included: threads stand in for ranks."""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from sharding_runs import TESTS, command, environment
from test_scoring_one_pass import PROMPTS, RESPONSES, by_group, gradients, require_close, tiny_model, two_passes

from gmc.errors import UsageError
from gmc.parameters.whole import Whole
from gmc.ranks import Ranks
from gmc.scoring import scorer
from gmc.scoring.scorer import Scorer

SECONDS = 60


class Meeting:
    """Where two threads exchange tensors; whoever comes alone, or with another shape, fails."""

    def __init__(self):
        self.barrier = threading.Barrier(2)
        self.given = [None, None]

    def exchange(self, rank, tensors):
        self.given[rank] = [tensor.clone() for tensor in tensors]
        self.barrier.wait(SECONDS)
        for tensor, one, other in zip(tensors, *self.given, strict=True):
            tensor.copy_(one + other)
        self.barrier.wait(SECONDS)


class OneOfTwo(Ranks):
    """A rank that adds up with the other thread."""

    def __init__(self, rank, meeting):
        super().__init__(rank, 2)
        object.__setattr__(self, "meeting", meeting)

    def add(self, tensors):
        self.meeting.exchange(self.rank, list(tensors))


class Lockstep(Whole):
    """Every pass is made by both at once, as a network in parts needs it: a pass without the other one fails."""

    lockstep = True

    def __init__(self, model, ranks):
        super().__init__(model, ranks)
        self.passes = 0

    def run(self, body):
        self.passes += 1
        self.ranks.meeting.barrier.wait(SECONDS)
        return super().run(body)


def both(budget, way):
    """What `way` gives on each of two ranks, by rank."""
    meeting, models = Meeting(), [tiny_model(), tiny_model()]

    def work(rank):
        model = models[rank]
        model.network.zero_grad()
        parameters = Lockstep(model, OneOfTwo(rank, meeting))
        scorer = Scorer(model, token_budget=budget, parameters=parameters)
        forward = way(scorer)
        return forward, gradients(model), parameters.passes, scorer.steps(PROMPTS, RESPONSES)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


def once(scorer):
    return scorer.forward_once(PROMPTS, RESPONSES, weigh=lambda logp_BT, known_B: by_group(logp_BT))


def twice(scorer):
    forward = scorer.forward(PROMPTS, RESPONSES)
    forward.backward(by_group(forward.logp_BT))
    return forward


@pytest.mark.unit
@pytest.mark.parametrize("budget", [25, 40])
def test_ranks_in_lockstep_give_the_bits_of_two_passes_with_fewer_passes(budget):
    single, double = both(budget, once), both(budget, twice)
    model = tiny_model()
    logp_BT, expected = two_passes(model, Scorer(model, token_budget=budget))
    for (one, own, fewer, steps), (two, same, more, _) in zip(single, double, strict=True):
        assert torch.equal(one.logp_BT, two.logp_BT)
        assert all(map(torch.equal, own, same))
        assert one.has_passed(by_group(one.logp_BT))
        assert fewer < more
        assert len({len(plan) for plan in steps.plans}) == 1
        torch.testing.assert_close(one.logp_BT, logp_BT, atol=2e-5, rtol=0)
    require_close([a + b for a, b in zip(single[0][1], single[1][1], strict=True)], expected)


@pytest.mark.unit
def test_a_network_that_is_scored_by_its_own_forward_is_refused_in_lockstep(monkeypatch):
    monkeypatch.setattr(scorer, "packed_mismatch", lambda model: "its logits are capped")
    Scorer(tiny_model())
    with pytest.raises(UsageError, match=r"train\.sharding = full: .*its logits are capped.*use --set train\.sharding=none"):
        Scorer(tiny_model(), parameters=Lockstep(tiny_model(), Ranks()))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_network_in_parts_does_so_too_for_every_scope(ranks, tmp_path):
    started = command(ranks, str(TESTS / "lockstep_ranks.py"), str(tmp_path))
    ended = subprocess.run(started, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-6000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) == ranks * 12
    for one in found:
        assert one["passed"], one
        assert one["same log-probs"], one
        assert one["same gradient"], one
        assert one["steps"], one
        assert one["log-probs apart"] <= 2e-5, one
        assert one["gradient apart"] <= 2e-5, one
        assert one["passes"][0] < one["passes"][1], one
    assert any(one["null"] for one in found) or ranks == 2  # two ranks may have equal numbers of micro-batches
