"""Truncated trajectory importance weighting: a response keeps its ratio up to a cap, and the cap beyond it."""

import math

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, ScalingEpsilonSettings


class Truncated(CappingEstimator):
    """Weights a response by min{ρ_i, c}, c = 1 + ε. No response is dropped, but each is capped on its own."""

    name = "truncated"
    summary = "Sequence truncation: min{ρ, 1+ε} for each response on its own"
    formula = "κ_i = min{ρ_i, c}·A_i, c = 1+ε"
    reference = "Truncated importance sampling (Ionides 2008); the sequence-level truncation of arXiv 2610.01896, Definition 1"
    evidence = "Weight: exact in common frameworks, with caps of 2 to 10 (epsilon 1 to 9). Loss normalizer: chosen as for gmc."
    Settings = ScalingEpsilonSettings

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{ρ_i, c})·A_i·log π at every token of response i."""
        log_weight_B = batch.log_rho_B.detach().clamp(max=math.log1p(self.epsilon(batch)))
        return torch.exp(log_weight_B)[:, None] * batch.advantages_B1 * batch.logp_BT
