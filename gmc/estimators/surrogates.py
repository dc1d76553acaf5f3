"""Pieces that several rules share: clamped log-ratios and the clipped surrogate."""

from torch import Tensor, minimum

from gmc.estimators.base import LOG_RATIO_CLAMP
from gmc.estimators.batch import Batch


def clamped_log_ratio(batch: Batch) -> Tensor:
    """log r per token within ±`LOG_RATIO_CLAMP`, with gradient (zero where the clamp is active). Shape BT.

    A surrogate built on it is flat beyond e^±20: such a token contributes nothing, rather than a weight above 4.9e8.
    """
    return batch.log_ratio_BT.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """min(r·A, clip(r, low, high)·A), elementwise; low and high are ratios. Source: PPO, arXiv 1707.06347, equation 7."""
    return minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
