"""The control arms of the studies, against plain floats and the contract."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gmc.testing import check_estimator, random_batch, run_stages

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks" / "lab-controls"))

from gmc_lab_controls.shuffled_gmc import ShuffledGMC, others

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("epsilon", [0.28, -0.5])
def test_every_group_is_weighed_by_the_alpha_of_another_and_each_alpha_is_used_once(epsilon):
    batch = random_batch(seed=3, groups=6, group_size=4, spread=1.5)
    outcome = run_stages(ShuffledGMC(ShuffledGMC.Settings(epsilon=epsilon)), batch)
    own, used = [], []
    for group in range(6):
        ratios, weights = [], []
        for row in range(4 * group, 4 * group + 4):
            length = int(batch.mask_BT[row].sum())
            logs = (batch.logp_BT.detach()[row, :length] - batch.behavior_logp_BT[row, :length]).tolist()
            ratios.append(math.exp(math.fsum(logs)))
            if length and outcome.advantages_PG.reshape(-1)[row] != 0:
                weights.append(float(outcome.gradient_BT[row, 0] / outcome.advantages_PG.reshape(-1)[row]) / ratios[-1])
        own.append(min(1.0, (1 + epsilon) * 4 / math.fsum(ratios)))
        assert weights, "a group of equal rewards shows no weight; choose another seed"
        assert weights == pytest.approx([weights[0]] * len(weights), rel=1e-9)
        used.append(weights[0])
    assert len({round(alpha, 9) for alpha in own if alpha < 1}) > 2
    assert sorted(used) == pytest.approx(sorted(own), rel=1e-9)
    assert all(mine != pytest.approx(given) for mine, given in zip(own, used, strict=True) if mine < 1)


def test_the_exchange_is_one_cycle_drawn_anew_for_each_update():
    drawn = set()
    for seed in range(40):
        exchange = others(7, seed).tolist()
        place, seen = 0, []
        for _ in range(7):
            place = exchange[place]
            seen.append(place)
        assert sorted(seen) == list(range(7)), "a cycle through all groups, so none keeps its own"
        drawn.add(tuple(exchange))
    assert len(drawn) > 30
    assert others(7, 3).tolist() == others(7, 3).tolist()
    assert others(1, 0).tolist() == [0]


def test_every_update_exchanges_anew_and_a_resumed_one_as_before():
    batch = random_batch(seed=3, groups=6, group_size=4, spread=1.5)
    gradients = [run_stages(ShuffledGMC(), replace(batch, update=update)).gradient_BT for update in (4, 5, 6, 4)]
    assert torch.equal(gradients[0], gradients[3])
    assert not any(torch.equal(gradients[0], other) for other in gradients[1:3])


def test_the_contract():
    check_estimator(ShuffledGMC)
    check_estimator(ShuffledGMC, {"epsilon": -0.5})


def test_without_a_delay_it_is_gmc():
    batch = random_batch(seed=1, on_policy=True)
    outcome = run_stages(ShuffledGMC(), batch)
    assert torch.equal(outcome.gradient_BT, outcome.advantages_PG.reshape(-1, 1) * batch.mask_BT)
