"""May a network be decoded by `PlainState`? Asked once, when an engine is built."""

import torch
from torch import Tensor

from gmc.engines.plain_state import Blocks, PlainState
from gmc.models import LanguageModel
from gmc.plain.decoder import PlainDecoder
from gmc.plain.structure import PlainStructure, small_structure

TOLERANCE = 1e-3
"""Largest difference of a float32 log-prob that counts as rounding, as for packed scoring."""


@torch.inference_mode()
def decodable_structure(model: LanguageModel) -> PlainStructure | None:
    """The structure of a small plain float32 network on a CPU whose `PlainState` gives its own log-probs; else None."""
    structure = small_structure(model)
    if structure is None:
        return None
    generator = torch.Generator().manual_seed(0)
    ids_BT = torch.randint(model.vocabulary_size, (4, 12), generator=generator)
    lengths = [5, 5, 3, 9]  # rows 0 and 1 are two samples of one prompt
    ids_BT[1, :5] = ids_BT[0, :5]
    stock_BTV = model.network(ids_BT).logits[..., : model.vocabulary_size].log_softmax(-1)
    return structure if _matches(PlainDecoder(structure, model.vocabulary_size), ids_BT, lengths, stock_BTV) else None


def _matches(decoder: PlainDecoder, ids_BT: Tensor, lengths: list[int], stock_BTV: Tensor) -> bool:
    """Whether two steps, the end of row 1 and a third step give what the stock forward gave at each place."""
    state = PlainState(lambda: decoder, 3, Blocks())
    rows_B = torch.arange(4)
    prompts = [ids_BT[row, : lengths[row]].tolist() for row in (0, 2, 3)]
    logits_BV = state.prefill(prompts, [2, 1, 1])
    read_B = torch.tensor(lengths)
    for step in range(3):
        if not _agree(logits_BV, stock_BTV[rows_B, read_B - 1]):
            return False
        if step == 2:
            rows_B = state.keep(torch.tensor([0, 2, 3]))
            read_B = read_B[rows_B]
        logits_BV = state.step(ids_BT[rows_B, read_B])
        read_B = read_B + 1
    return _agree(logits_BV, stock_BTV[rows_B, read_B - 1])


def _agree(logits_BV: Tensor, stock_BV: Tensor) -> bool:
    return bool((logits_BV.log_softmax(-1) - stock_BV).abs().max() <= TOLERANCE)
