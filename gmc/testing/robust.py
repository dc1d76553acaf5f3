"""What must not break a rule: extreme ratios, empty responses, equal rewards, a resume."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.gradient import Gradient, Skip
from gmc.testing.batches import make_batch, take_rows, with_logp
from gmc.testing.rule import SEEDS, Rule
from gmc.testing.stages import run_stages


def check_extreme_ratios(rule: Rule) -> None:
    """Log-ratios of ±800 give finite float32 gradients: at most e^20 in weight, and far less where declared bounded."""
    for seed in SEEDS:
        draw = torch.Generator().manual_seed(seed)
        sign_B1 = torch.where(torch.rand(12, 1, generator=draw) < 0.5, -1.0, 1.0)
        spike_BT = torch.zeros(12, 4)
        spike_BT[:, 1] = 800
        # 19 lies just below the clamp, where a surrogate that the clamp flattens at 800 shows how large its weights can be.
        extremes = (sign_B1 * spike_BT, sign_B1.expand(-1, 4) * 200, sign_B1 * spike_BT - 2, sign_B1 * spike_BT * (19 / 800))
        for log_ratio_BT in extremes:
            rewards_PG = torch.randint(0, 2, (3, 4), generator=draw).float()
            batch = make_batch(log_ratio_BT, rewards_PG)
            for extreme in (batch, _with_far_policies(batch, log_ratio_BT)):
                _check_gradient(rule, extreme)


def _with_far_policies(batch: Batch, log_ratio_BT: Tensor) -> Batch:
    """The same responses with the engine and the reference as far from the trainer and the current policy as that is from μ."""
    engine_BT, reference_BT = batch.behavior_logp_BT - log_ratio_BT.flip(0), batch.logp_BT.detach() + log_ratio_BT
    return replace(batch, brought={**batch.brought, Need.ENGINE_LOGP: engine_BT, Need.REFERENCE_LOGP: reference_BT})


def _check_gradient(rule: Rule, batch: Batch) -> None:
    bounded = rule.declared.bounded
    outcome = rule.outcome(batch)
    gradient_BT = outcome.gradient_BT
    assert torch.isfinite(gradient_BT).all(), "log-ratios of ±800 give a gradient that is not finite"
    assert 0 < outcome.learning_rate_scale < math.inf, "log-ratios of ±800 break the learning-rate scale"
    limit = math.exp(LOG_RATIO_CLAMP) if not bounded else math.exp(LOG_RATIO_CLAMP - 5)
    largest = float(gradient_BT.abs().max()) / max(1.0, float(outcome.advantages_PG.abs().max()))
    declared = "bounded" if bounded else f"unbounded, to be clamped at e^{LOG_RATIO_CLAMP:g}"
    assert largest <= limit * 1.001, f"a weight reaches {largest:.3g}, but the rule is declared {declared}"


def check_empty_responses(rule: Rule) -> None:
    """A batch may hold empty responses, a group of them, or nothing else."""
    for empty_groups in (1, 3):
        lengths = [0] * (4 * empty_groups) + [2] * (12 - 4 * empty_groups)
        rewards_PG = torch.tensor([[0.0, 1.0, 1.0, 0.0]] * 3)
        outcome = rule.outcome(make_batch(torch.full((12, 2), 0.1), rewards_PG, lengths_B=lengths))
        assert torch.isfinite(outcome.gradient_BT).all(), "an empty response gives a gradient that is not finite"
        assert not outcome.gradient_BT[: 4 * empty_groups].any(), "an empty response receives a gradient"
        assert math.isfinite(outcome.learning_rate_scale), "an empty response breaks the learning-rate scale"


def check_equal_rewards(rule: Rule) -> None:
    """Groups of equal rewards get exactly zero, however the reward rounds."""
    if not rule.declared.equal_rewards_vanish:
        return
    for reward in (1.0, 0.1, 1 / 3):
        batch = rule.batch(0, groups=3, group_size=7, dtype=torch.float32)
        rewards_PG = batch.rewards_PG.clone()
        rewards_PG[1] = reward
        gradient_PGT = rule.outcome(replace(batch, rewards_PG=rewards_PG)).gradient_BT.reshape(3, 7, -1)
        assert not gradient_PGT[1].any(), f"a group whose rewards are all {reward:g} does not give exactly zero"


def check_state(rule: Rule) -> None:
    """An instance that takes over another's state goes on exactly like it; foreign state is refused."""
    original = rule.fresh()
    for step in range(2):
        _update(original, rule, step)
    state = {key: value.clone() for key, value in original.state_dict().items()}
    assert all(isinstance(value, Tensor) for value in state.values()), "state_dict holds something that is not a tensor"
    resumed = rule.fresh()
    resumed.load_state_dict(state)
    for step in range(2, 4):
        expected, actual = _update(original, rule, step), _update(resumed, rule, step)
        assert expected == actual, f"after a resume, update {step} differs: {actual} instead of {expected}"
    assert _equal(original.state_dict(), resumed.state_dict()), "after a resume, the state develops differently"
    try:
        rule.fresh().load_state_dict({"no such state": torch.zeros(1)})
    except ValueError:
        return
    raise AssertionError("load_state_dict accepts state that the rule does not know")


def _update(instance: Estimator, rule: Rule, step: int) -> list[object]:
    outcome = run_stages(instance, rule.batch(step, update=step))
    draw = torch.Generator().manual_seed(step)
    gradient = Gradient([torch.randn(5, generator=draw) + 0.2, torch.randn(2, 3, generator=draw)])
    result = instance.gradient(gradient)
    after = "skip" if isinstance(result, Skip) else [tensor.tolist() for tensor in result.tensors]
    return [outcome.gradient_BT.tolist(), outcome.learning_rate_scale, dict(instance.metrics(_batch(rule, step))), after]


def _batch(rule: Rule, step: int) -> Batch:
    batch = rule.batch(step, update=step)
    return batch.with_advantages(torch.zeros_like(batch.rewards_PG))


def _equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def check_metrics(rule: Rule) -> None:
    """Metrics are finite numbers under plain names, on ordinary and on extreme batches."""
    ordinary = rule.batch(0)
    for batch in (ordinary, with_logp(ordinary, ordinary.logp_BT - 100), take_rows(ordinary, torch.arange(12), 3)):
        for key, value in rule.outcome(batch).metrics.items():
            assert "/" not in key, f"metric {key!r} contains a slash; the trainer adds the rule's name"
            finite = isinstance(value, float | int) and math.isfinite(value)
            assert finite, f"metric {key!r} is {value!r}, not a finite number"
