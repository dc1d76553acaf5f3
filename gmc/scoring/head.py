"""Log-probs of sampled tokens from hidden states, without ever holding the logits of a whole batch."""

import torch
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import linear, linear_cross_entropy

CHUNK_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}
"""Size of the float32 logits held at a time, by device. The number of rows in a chunk follows from the vocabulary: each chunk
reads the whole head again, which on a GPU would cost more than the products of a small chunk."""


def token_logp(hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_R: Tensor, temperature: float) -> Tensor:
    """log π(target) of softmax(hidden · weightᵀ / temperature), float32, differentiable: logp_R.

    The head and its log-softmax are float32 whatever the network computed in. Backward recomputes the logits of a chunk.
    """
    scaled_RD = hidden_RD.float() / temperature
    return -linear_cross_entropy(
        scaled_RD,
        weight_VD,
        targets_R,
        linear_bias=None if bias_V is None else bias_V / temperature,
        reduction="none",
        options=LinearCrossEntropyOptions(chunking_method=None, batch_chunk_size=chunk_rows(weight_VD)),
    )


@torch.no_grad()
def token_entropies(hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    """Entropy −Σ π log π (nats) of each next-token distribution: entropy_R."""
    chunks = torch.split(hidden_RD.float(), chunk_rows(weight_VD))
    return torch.cat([logits_entropies(linear(chunk, weight_VD, bias_V), temperature) for chunk in chunks])


def logits_logp(logits_RV: Tensor, targets_R: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / temperature) at the targets, float32, differentiable: logp_R."""
    logp_RV = (logits_RV.float() / temperature).log_softmax(-1)
    return logp_RV.gather(1, targets_R.unsqueeze(1)).squeeze(1)


@torch.no_grad()
def logits_entropies(logits_RV: Tensor, temperature: float) -> Tensor:
    """Entropy (nats) of softmax(logits / temperature): entropy_R."""
    probabilities_RV = (logits_RV.float() / temperature).softmax(-1)
    return -torch.xlogy(probabilities_RV, probabilities_RV).sum(-1)


def chunk_rows(weight_VD: Tensor) -> int:
    """Rows of logits that are held at a time, at least 16."""
    return max(CHUNK_BYTES.get(weight_VD.device.type, CHUNK_BYTES["cpu"]) // (4 * weight_VD.shape[0]), 16)
