"""A loaded network is asked a few tokens: is it finite, does it look ahead, and what do positions far away change?"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from gmc.errors import DataError

TOLERANCE = 1e-3
"""Largest difference of a float32 log-prob that counts as rounding."""

LENGTH = 8
"""Tokens of a probe."""


def require_finite(network: PreTrainedModel, source: str) -> None:
    """Raise `DataError` naming the first parameter that holds a NaN or an infinity."""
    for name, parameter in network.named_parameters():
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all()):
            raise DataError(f"{source}: tensor {name} holds values that are no numbers; restore the model from a copy.")


@torch.no_grad()
def require_causal(network: PreTrainedModel, source: str, token_ids: list[int]) -> None:
    """Raise `DataError` for a network whose log-probs are not finite, or depend on tokens that come later."""
    ids_1T = _probe(network, token_ids)
    changed_1T = ids_1T.clone()
    changed_1T[0, -1] = token_ids[-1] if int(ids_1T[0, -1]) != token_ids[-1] else token_ids[0]
    logp_2TV = _logp(network, torch.cat((ids_1T, changed_1T)))
    if not bool(torch.isfinite(logp_2TV).all()):
        raise DataError(
            f"{source}: its log-probs of {LENGTH} plain tokens are not finite: it is damaged, or the policy of a training that "
            "diverged; restore it from a copy, or take an earlier version"
        )
    ahead = float((logp_2TV[0, :-1] - logp_2TV[1, :-1]).abs().max())
    if ahead > TOLERANCE:
        raise DataError(
            f"{source}: what it says of a token depends on the tokens after it (by {ahead:.2g} nats), so it is no causal "
            "language model; a decoder is needed (an encoder such as BERT cannot be sampled from)."
        )


@torch.no_grad()
def position_limit(network: PreTrainedModel, source: str, context: int | None, token_ids: list[int]) -> int | None:
    """Positions below which log-probs depend on a text alone; None when that is so for the whole context.

    A rope that switches or stretches with the longest text of a forward pass (LongRoPE, dynamic NTK) gives a short text other
    log-probs beside a long one. Raises `DataError` when the config does not say where, or says it wrong.
    """
    if context is None or context <= LENGTH:
        return None
    ids_1T = _probe(network, token_ids)
    if not _depends_on_mate(network, ids_1T, context):
        return None
    known = sorted({size for size in _switches(network.config.to_dict()) if LENGTH < size < context})
    if known and not _depends_on_mate(network, ids_1T, known[0]):
        return known[0]
    raise DataError(
        f"{source}: its log-probs of a text depend on how long the texts beside it are, and its config does not say from which "
        "length on; set max_position_embeddings to the length up to which positions are not rescaled."
    )


def _depends_on_mate(network: PreTrainedModel, ids_1T: Tensor, limit: int) -> bool:
    """Whether a text of LENGTH tokens gets other log-probs beside one that ends at position limit − 1."""
    near_1T = torch.arange(LENGTH, device=ids_1T.device).unsqueeze(0)
    try:
        alone_TV = _logp(network, ids_1T, position_ids=near_1T)[0]
        positions_2T = torch.cat((near_1T, near_1T + limit - LENGTH))
        beside_TV = _logp(network, ids_1T.expand(2, -1), position_ids=positions_2T)[0]
    except TypeError:  # the network takes no positions
        return False
    return float((alone_TV - beside_TV).abs().max()) > TOLERANCE


def _switches(config: Mapping[str, Any]) -> Iterator[int]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _switches(value)
        elif key == "original_max_position_embeddings" and isinstance(value, int):
            yield value


def _probe(network: PreTrainedModel, token_ids: list[int]) -> Tensor:
    spread = [token_ids[(7 * place + 3) % len(token_ids)] for place in range(LENGTH)]
    return torch.tensor([spread], device=network.device)


def _logp(network: PreTrainedModel, ids_BT: Tensor, **options: Tensor) -> Tensor:
    logp_BTV: Tensor = network(input_ids=ids_BT, use_cache=False, **options).logits.float().log_softmax(-1)
    return logp_BTV
