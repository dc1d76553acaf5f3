"""Does packed scoring give what the network's own forward gives? Asked once, when a scorer is built."""

import torch

from gmc.models import LanguageModel, random_ids
from gmc.scoring.attention import UnsupportedAttentionError
from gmc.scoring.passes import PackedPass, StockPass
from gmc.scoring.plan import make_plan

TOLERANCE = 1e-3
"""Largest difference of a float32 log-prob that counts as rounding. A wrong mask or a missed soft cap moves far more."""


@torch.no_grad()
def packed_mismatch(model: LanguageModel) -> str | None:
    """None when packed scoring equals the stock forward on random tokens, else one clause that says why not."""
    if not model.full_attention:  # A probe this short would not see a sliding window.
        return "some of its layers do not attend to the whole past"
    generator = torch.Generator().manual_seed(0)
    prompts, responses = ([random_ids(model, length, generator) for length in lengths] for lengths in ((5, 3), (4, 1, 2, 6)))
    groups = [responses[:2], responses[2:]]
    (micro_batch,) = make_plan([5, 3], [[4, 1], [2, 6]], 1024)
    settings = (model.network, model.vocabulary_size, 1.0, None, False, None, model.absent_ids)
    packed, stock = PackedPass(*settings), StockPass(*settings)
    try:
        with packed.active():
            ours_R = packed.run(micro_batch, prompts, groups, entropies=False).logp_R
    except torch.OutOfMemoryError:  # says nothing about the layers
        raise
    except (UnsupportedAttentionError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return f"its layers do not accept packed attention ({error})"
    with stock.active():
        theirs_R = stock.run(micro_batch, prompts, groups, entropies=False).logp_R
    difference = (ours_R - theirs_R).abs().max().item()
    return None if difference <= TOLERANCE else f"log-probs differ by {difference:.2g} between packed and stock forward"
