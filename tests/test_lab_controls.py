"""The controls of the studies, against plain floats and the contract."""

import math
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gmc.config.sampling import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.models import load_model
from gmc.testing import check_estimator, random_batch, run_stages

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks" / "lab-controls"))

from gmc_lab_controls.noisy_engine import NoisyEngine
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


def test_the_noisy_engine_samples_the_same_tokens_and_reports_normal_noise_drawn_by_the_seed():
    model = load_model("embedded")
    prompts = [model.tokenizer(f"{number}+7=")["input_ids"] for number in range(30)]
    options = {"group_size": 8, "sampling": Sampling(temperature=1.0, max_tokens=12), "seeds": [2**50 + n for n in range(30)]}
    plain, noisy, again = (
        engine(model).generate(prompts, **options) for engine in (TransformersEngine, NoisyEngine, NoisyEngine)
    )
    assert noisy == again
    assert [[one.token_ids for one in group] for group in noisy] == [[one.token_ids for one in group] for group in plain]
    pairs = [
        (found, true)
        for ours, theirs in zip(noisy, plain, strict=True)
        for one, other in zip(ours, theirs, strict=True)
        for found, true in zip(one.logprobs, other.logprobs, strict=True)
    ]
    assert max(found for found, _ in pairs) <= 0
    # The log-odds of a token move by the noise itself. Rounding hides it where the token was all but certain.
    open_ = [(found, true) for found, true in pairs if true < -1e-3]
    noise = [math.log(math.expm1(-true) / math.expm1(-found)) for found, true in open_]
    count = len(noise)
    assert count > 500
    assert len(set(noise)) > 0.99 * count
    assert abs(math.fsum(noise) / count) < 4 * 0.35 / math.sqrt(count)
    assert math.sqrt(math.fsum(one**2 for one in noise) / count) == pytest.approx(0.35, rel=4 / math.sqrt(2 * count))
    assert all(abs(found - true) < 1e-3 for found, true in pairs if true > -1e-4)


def test_each_control_is_registered_under_its_own_name():
    points = tomllib.loads(
        (Path(__file__).resolve().parent.parent / "benchmarks" / "lab-controls" / "pyproject.toml").read_text("utf-8")
    )["project"]["entry-points"]
    assert points["gmc.estimators"] == {ShuffledGMC.name: f"{ShuffledGMC.__module__}:ShuffledGMC"}
    assert points["gmc.engines"] == {NoisyEngine.name: f"{NoisyEngine.__module__}:NoisyEngine"}
