"""Drawing the next token: the distribution of a `Sampling`, and noise that belongs to a (seed, sample) pair alone."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gmc.config.sampling import Sampling

_SEED_RANGE = 2**64


def uniform_noise(seeds_B: Sequence[int], samples_B: Sequence[int], max_tokens: int) -> Tensor:
    """One uniform number in [0, 1) for every token of every row, float64: noise_BT.

    A row's numbers depend on its prompt's seed and its sample index only: not on other rows, the batch or `max_tokens`.
    """
    rows = [
        np.random.default_rng([seed % _SEED_RANGE, sample]).random(max_tokens)
        for seed, sample in zip(seeds_B, samples_B, strict=True)
    ]
    return torch.from_numpy(np.stack(rows))


def next_tokens(logits_BV: Tensor, noise_B: Tensor, sampling: Sampling, seen_BV: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution at `noise_B`: tokens_B and their log-probs logp_B.

    logits_BV: raw logits of the tokenizer's ids. seen_BV: which ids occur in the row so far, for the repetition penalty.
    The log-prob is that of the distribution really sampled from, so 0 for greedy decoding (temperature 0).
    """
    logits_BV = logits_BV.float()
    if seen_BV is not None:
        penalty = sampling.repetition_penalty
        penalized_BV = torch.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty)
        logits_BV = torch.where(seen_BV, penalized_BV, logits_BV)
    if sampling.temperature == 0:
        tokens_B = logits_BV.argmax(-1)
        return tokens_B, torch.zeros_like(tokens_B, dtype=torch.float32)
    logp_BV = truncate(logits_BV / sampling.temperature, sampling).log_softmax(-1)
    # Each probability needs no more digits than its logarithm has, only their sum does.
    cumulative_BV = logp_BV.exp().cumsum(-1, dtype=torch.float64)
    drawn_B1 = torch.searchsorted(cumulative_BV, noise_B.unsqueeze(1) * cumulative_BV[:, -1:], right=True)
    tokens_B1 = drawn_B1.clamp_max_(logp_BV.shape[1] - 1)
    return tokens_B1.squeeze(1), logp_BV.gather(1, tokens_B1).squeeze(1)


def truncate(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Logits (temperature applied) with −inf at what top-k, then top-p, then min-p remove: the order of transformers.

    The most probable token always stays.
    """
    if sampling.top_k:
        kept = min(sampling.top_k, logits_BV.shape[-1])
        threshold_B1 = logits_BV.topk(kept, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < threshold_B1, -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True)
        probabilities_BV = sorted_BV.softmax(-1)
        before_BV = probabilities_BV.cumsum(-1) - probabilities_BV
        removed_BV = before_BV >= sampling.top_p
        removed_BV[:, 0] = False
        logits_BV = logits_BV.masked_fill(torch.zeros_like(removed_BV).scatter(1, order_BV, removed_BV), -torch.inf)
    if sampling.min_p > 0:
        probabilities_BV = logits_BV.softmax(-1)
        floor_B1 = sampling.min_p * probabilities_BV.amax(-1, keepdim=True)
        logits_BV = logits_BV.masked_fill(probabilities_BV < floor_B1, -torch.inf)
    return logits_BV
