"""Does packed scoring give what the network's own forward gives? Asked once, when a scorer is built."""

import torch
from transformers import PretrainedConfig

from gmc.models import LanguageModel
from gmc.training.attention import UnsupportedAttentionError
from gmc.training.passes import PackedPass, StockPass
from gmc.training.plan import make_plan

TOLERANCE = 1e-3
"""Largest difference of a float32 log-prob that counts as rounding. A wrong mask or a missed soft cap moves far more."""


@torch.no_grad()
def packed_mismatch(model: LanguageModel) -> str | None:
    """None when packed scoring equals the stock forward on random tokens, else one clause that says why not."""
    window = sliding_window(model.network.config.get_text_config())
    if window is not None:
        return f"its attention has a sliding window of {window} tokens or layers of other kinds"
    generator = torch.Generator().manual_seed(0)
    prompts, responses = (
        [torch.randint(model.vocabulary_size, (length,), generator=generator).tolist() for length in lengths]
        for lengths in ((5, 3), (4, 1, 2, 6))
    )
    groups = [responses[:2], responses[2:]]
    (micro_batch,) = make_plan([5, 3], [[4, 1], [2, 6]], 1024)
    settings = (model.network, model.vocabulary_size, 1.0, None, False)
    packed, stock = PackedPass(*settings), StockPass(*settings)
    try:
        with packed.active():
            ours_R = packed.run(micro_batch, prompts, groups, moments=False).logp_R
    except (UnsupportedAttentionError, TypeError, ValueError, AttributeError) as error:
        return f"its layers do not accept packed attention ({error})"
    with stock.active():
        theirs_R = stock.run(micro_batch, prompts, groups, moments=False).logp_R
    difference = (ours_R - theirs_R).abs().max().item()
    return None if difference <= TOLERANCE else f"log-probs differ by {difference:.2g} between packed and stock forward"


def sliding_window(config: PretrainedConfig) -> object | None:
    """What limits the attention of some layer to less than the whole past, or None. Short probes cannot see it."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window: object = getattr(config, "sliding_window", None)
    if kinds == {"full_attention"} and getattr(config, "layer_types", None):
        return None
    return window if kinds == {"full_attention"} else window or ", ".join(sorted(kinds - {"full_attention"}))
