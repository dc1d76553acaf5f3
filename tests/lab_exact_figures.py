"""What the exact model must give, from an independent computation of the same settings."""

import math

import numpy as np
import torch

from gmc.estimators.registry import build_estimator
from gmc.lab.exact.groups import all_groups_PG
from gmc.lab.exact.moments import exact_moments
from gmc.lab.exact.pairs import drifted
from gmc.lab.exact.policy import TabularPolicy

EPSILON = 0.28
QUALITY = {
    "is": {1: 0.89493, 2: 0.84270, 4: 0.72462},
    "gmc": {1: 0.89593, 2: 0.84145, 4: 0.69655},
    "truncated": {1: 0.87069, 2: 0.75949, 4: 0.48346},
    "tic": {1: 0.67358, 2: 0.59807, 4: 0.42449},
    "tic:epsilon=8": {1: 0.89493, 2: 0.84270, 4: 0.68275},
}
"""Q at P = 8 by uphill drift, mean of 12 pairs."""

BIAS_BY_GROUP_SIZE = {
    "gmc": {2: 0.58, 4: 0.41, 8: 0.27, 16: 0.14, 32: 0.07},
    "tic": dict.fromkeys((2, 4, 8, 16, 32), 0.863),
    "truncated": dict.fromkeys((2, 4, 8, 16, 32), 0.683),
}
"""Relative bias at drift 2.5, V = T = 2, reward at response 0."""

CAPPING = ("gmc", "tic", "truncated")


def rewards_at(policy, rewarded):
    rewards_K = torch.zeros(len(policy.responses_KT), dtype=torch.float64)
    rewards_K[rewarded] = 1
    return rewards_K


def pairs_by_drift(per_drift):
    """Of the 96 pairs, the first of each drift and direction: (policy, rewards, pairs)."""
    policy, draw, pairs = TabularPolicy(2, 3), np.random.default_rng(0), []
    rewards_K = rewards_at(policy, [1, 6])
    for drift in (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        for trial in range(12):
            behavior_D = torch.from_numpy(draw.normal(size=policy.parameters))
            way_D = (
                torch.from_numpy(draw.normal(size=policy.parameters)) if trial < 6 else policy.gradient_D(behavior_D, rewards_K)
            )
            if trial % 6 < per_drift:
                pairs.append(drifted(behavior_D, way_D, drift))
    return policy, rewards_K, pairs


def check_bounds(policy, rewards_K, pair, groups_PG):
    """What holds for every pair of policies at G = 8 and ε = 0.28."""
    log_pi_K, log_mu_K = (policy.logp_KT(theta_D).sum(-1) for theta_D in (pair.current_D, pair.behavior_D))
    kl = float((log_pi_K.exp() * (log_pi_K - log_mu_K)).sum())
    found = {name: exact_moments(build_estimator(name), policy, pair, rewards_K, groups_PG) for name in ("is", *CAPPING)}
    unbiased = found["is"]
    assert torch.allclose(unbiased.mean_D, unbiased.gradient_D, rtol=0, atol=1e-10)
    assert unbiased.removed < 1e-12
    largest = 8 / 7 * float(policy.scores_KTD(pair.current_D).sum(1).norm(dim=-1).max())
    for name in CAPPING:
        one = found[name]
        assert one.mass_second <= 1 + EPSILON + 1e-9
        assert one.mass_largest <= 1 + EPSILON + 1e-9
        assert float((one.mean_D - one.gradient_D).norm()) <= largest * one.removed + 1e-12
    removed = {name: found[name].removed for name in CAPPING}
    assert removed["gmc"] <= kl / math.log(1 + 2 * EPSILON) + 1e-12
    assert removed["tic"] <= kl / (math.log(1 + EPSILON) - EPSILON / (1 + EPSILON)) + 1e-12
    assert removed["gmc"] <= min(removed["truncated"], removed["tic"]) + 1e-12
    return kl


def bias_by_group_size(rule, group_size):
    """Mean relative bias over draws 21 to 30 of `default_rng(1).normal(size=6)`."""
    policy, draw = TabularPolicy(2, 2), np.random.default_rng(1)
    rewards_K, groups_PG = rewards_at(policy, [0]), all_groups_PG(4, group_size)
    biases = []
    for behavior_D in [torch.from_numpy(draw.normal(size=6)) for _ in range(30)][20:]:
        pair = drifted(behavior_D, policy.gradient_D(behavior_D, rewards_K), 2.5)
        biases.append(exact_moments(build_estimator(rule), policy, pair, rewards_K, groups_PG).relative_bias)
    return sum(biases) / len(biases)
