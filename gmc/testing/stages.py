"""Running a rule's stages on a batch without a model."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch


@dataclass(frozen=True)
class Outcome:
    """What a rule made of a batch.

    advantages_PG: of stage 1. gradient_BT: ∂ Σ masked objective / ∂ log π, before any normalizer; for a weight rule this is
    weight times advantage. learning_rate_scale: of stage 4. metrics: as the rule names them.
    """

    advantages_PG: Tensor
    gradient_BT: Tensor
    learning_rate_scale: float
    metrics: Mapping[str, float]


def run_stages(rule: Estimator, batch: Batch) -> Outcome:
    """Run every stage but the gradient's. Advantages that the batch already carries are kept instead of stage 1's."""
    advantages_PG = rule.advantages(batch) if batch.advantages is None else batch.advantages
    ready = batch.with_advantages(advantages_PG)
    objective_BT = rule.objective(ready)
    total = torch.where(ready.mask_BT, objective_BT, torch.zeros_like(objective_BT)).sum()
    if total.requires_grad:
        (gradient_BT,) = torch.autograd.grad(total, ready.logp_BT)
    else:
        gradient_BT = torch.zeros_like(ready.logp_BT)
    scale = rule.learning_rate_scale(ready)
    return Outcome(ready.advantages_PG, gradient_BT, scale, dict(rule.metrics(ready)))
