"""Running a rule's stages on a batch without a model."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from gmc.estimators import results
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
    """Run every stage but the gradient's. Advantages that the batch already carries are kept instead of stage 1's.

    Raises `StageResultError` when a stage returns something other than the contract says.
    """
    advantages_PG = batch.advantages
    if advantages_PG is None:
        advantages_PG = results.checked_advantages(rule.advantages(batch), batch)
    ready = batch.with_advantages(advantages_PG)
    objective_BT = results.checked_objective(rule.objective(ready), ready)
    gradient_BT = results.objective_gradient(objective_BT, ready)
    scale = results.checked_scale(rule.learning_rate_scale(ready))
    return Outcome(ready.advantages_PG, gradient_BT, scale, dict(rule.metrics(ready)))
