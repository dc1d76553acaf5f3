"""How may a network be decoded? Its cached steps are compared with its own plain forward, once, when an engine is built.

Prompts of unequal length are padded left, rows that end leave the cache, and not every network stands both: padding reaches
the state of a recurrent layer, and a cache may not be able to drop rows. The first way that gives the right log-probs is used.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.engines.decoding import AnyState, FullAttentionState, State
from gmc.errors import UsageError
from gmc.models import LanguageModel, random_ids

TOLERANCE = 1e-3
"""Largest difference of a float32 log-prob that counts as rounding, as for packed scoring."""

QUANTIZED_TOLERANCE = 0.1
"""The same for quantized weights: 8-bit products quantize what goes in, too, by what stands beside it."""

PROMPT_LENGTHS = (5, 2, 9)
SAMPLES = (2, 1, 2)
STEPS = 4
ENDING = 1
"""The row that ends after the second step."""


@dataclass(frozen=True)
class Decoding:
    """One way to decode. make: a state for so many tokens; equal_lengths: whether only prompts of one length go together."""

    name: str
    make: Callable[[int], State]
    equal_lengths: bool = False


def choose_decoding(model: LanguageModel) -> Decoding:
    """The fastest way to decode this network that gives the log-probs of its own forward on texts of unequal length.

    Raises `UsageError` when there is none.
    """
    candidates = [
        Decoding("any cache", lambda tokens: AnyState(model)),
        Decoding("any cache, prompts of one length", lambda tokens: AnyState(model, masked=False), equal_lengths=True),
    ]
    if model.full_attention and model.network.config.get_text_config()._attn_implementation == "sdpa":
        candidates.insert(0, Decoding("full attention", lambda tokens: FullAttentionState(model, tokens)))
    found = []
    for candidate in candidates:
        fault = _fault(model, candidate)
        if fault is None:
            return candidate
        found.append(f"{candidate.name}: {fault}")
    raise UsageError(
        f"{model.source}: the transformers engine cannot sample from {type(model.network).__name__}, whose cached steps are "
        f"not its forward ({'; '.join(found)}); try --engine vllm"
    )


@torch.inference_mode()
def _fault(model: LanguageModel, decoding: Decoding) -> str | None:
    """None when every step of every text has the log-probs of the stock forward, else one clause that says what happened."""
    generator = torch.Generator().manual_seed(0)
    texts = [
        (prompt, [random_ids(model, STEPS, generator) for _ in range(count)])
        for prompt, count in zip([random_ids(model, n, generator) for n in PROMPT_LENGTHS], SAMPLES, strict=True)
    ]
    batches = [[text] for text in texts] if decoding.equal_lengths else [texts]
    try:
        worst = max(_difference(model, decoding.make(STEPS), batch) for batch in batches)
    except Exception as error:  # a network's own code can fail in any way on a cache that it was not written for
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return None if worst <= (QUANTIZED_TOLERANCE if model.quantized else TOLERANCE) else f"log-probs differ by {worst:.2g}"


def _difference(model: LanguageModel, state: State, batch: list[tuple[list[int], list[list[int]]]]) -> float:
    """Largest difference to the stock forward over a decoding in which one row ends early."""
    full = [[*prompt, *response] for prompt, responses in batch for response in responses]
    starts = [len(prompt) for prompt, responses in batch for _ in responses]
    wanted = [_stock(model, text) for text in full]
    logits_BV = state.prefill([prompt for prompt, _ in batch], [len(responses) for _, responses in batch])
    rows, worst = list(range(len(full))), 0.0
    for step in range(STEPS):
        logp_BV = _logp(model, logits_BV)
        difference_BV = logp_BV - torch.stack([wanted[row][starts[row] + step - 1] for row in rows])
        worst = max(worst, float(difference_BV.abs().nan_to_num(nan=torch.inf).max()))
        if step == 1 and len(rows) > 1:
            kept = torch.tensor([place for place in range(len(rows)) if place != ENDING], device=model.device)
            rows = [rows[place] for place in state.keep(kept).tolist()]
        if step + 1 < STEPS:
            tokens = [full[row][starts[row] + step] for row in rows]
            logits_BV = state.step(torch.tensor(tokens, device=model.device))
    return worst


def _stock(model: LanguageModel, text: list[int]) -> Tensor:
    """Log-probs after each token of one text by the network's own forward: logp_TV."""
    return _logp(model, model.network(input_ids=torch.tensor([text], device=model.device), use_cache=False).logits[0])


def _logp(model: LanguageModel, logits_BV: Tensor) -> Tensor:
    """Over the ids that exist."""
    known = sorted(set(range(model.vocabulary_size)) - set(model.absent_ids))
    return logits_BV[..., torch.tensor(known, device=model.device)].float().log_softmax(-1)
