"""One rule on one batch: its stages on log-probs, then the model's gradient. Training and comparison both go this way."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.gradient import Gradient
from gmc.estimators.normalizer import Normalizer
from gmc.gradients.normalize import coefficients
from gmc.gradients.rule_calls import RuleCalls
from gmc.parameters.base import Parameters
from gmc.scoring.forward import Forward


@dataclass(frozen=True)
class TokenGradient:
    """What a rule made of a batch. batch: with its advantages; gradient_BT: ∂ Σ masked objective / ∂ log π, before any
    normalizer, so for a rule of weights it is weight times advantage."""

    batch: Batch
    gradient_BT: Tensor

    @property
    def finite(self) -> bool:
        """Whether every value is a number."""
        return bool(torch.isfinite(self.gradient_BT).all())


def token_gradient(rule: RuleCalls, batch: Batch) -> TokenGradient:
    """Stages 1 and 2 of a rule. Raises `EstimatorStageError` when the rule breaks its contract."""
    batch = batch.with_advantages(rule.advantages(batch))
    return TokenGradient(batch, rule.objective_gradient(batch))


def objective_weights(tokens: TokenGradient, normalizer: Normalizer) -> Tensor:
    """∂ scalar objective / ∂ log π by token (B, T): the token gradient under a loss normalizer."""
    batch = tokens.batch
    return coefficients(batch.mask_BT, normalizer, batch.max_response_tokens) * tokens.gradient_BT


def model_gradient(parameters: Parameters, current: Forward, grad_BT: Tensor) -> Gradient:
    """Σ grad · ∂ log π / ∂θ over the batch, summed over ranks; it is left in the parameters' `.grad`.

    A gradient that went back with the forward pass is not computed again. A parameter that no response reaches gets zeros, not
    None: with nothing to learn from (all rewards equal) an optimizer's moments must still decay.
    """
    if not current.has_passed(grad_BT):
        parameters.clear()
        current.backward(grad_BT)
    return parameters.gradient()
