"""From a per-token objective to one number: masks and global, fixed denominators."""

import torch
from torch import Tensor

from gmc.estimators.normalizer import Normalizer


def coefficients(mask_BT: Tensor, normalizer: Normalizer, max_response_tokens: int) -> Tensor:
    """Factor of each token's objective in the scalar objective of the whole update batch (float32, B × T).

    mask_BT: True at response tokens; the factor is 0 elsewhere. max_response_tokens: the constant L_max of
    seq-mean-token-sum-norm. Factors depend on the batch's lengths and size alone: a response that a rule rejects
    contributes zero and stays in the denominator, and so does an empty one.
    """
    mask = mask_BT.float()
    sequences = mask_BT.shape[0]
    match normalizer:
        case Normalizer.TOKEN_MEAN:
            return mask / mask.sum().clamp(min=1)
        case Normalizer.SEQ_MEAN_TOKEN_MEAN:
            return mask / mask.sum(-1, keepdim=True).clamp(min=1) / sequences
        case Normalizer.SEQ_MEAN_TOKEN_SUM:
            return mask / sequences
        case Normalizer.SEQ_MEAN_TOKEN_SUM_NORM:
            return mask / (sequences * max_response_tokens)


def normalized(objective_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer, max_response_tokens: int) -> Tensor:
    """The objective of a whole update batch as a scalar (to be maximized). Values at padding do not matter, NaN included."""
    masked_BT = torch.where(mask_BT, objective_BT, torch.zeros_like(objective_BT))
    return (coefficients(mask_BT, normalizer, max_response_tokens).to(masked_BT.dtype) * masked_BT).sum()
