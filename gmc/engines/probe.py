"""Does an engine hold the weights it was given? Its log-probs of fixed tokens, compared with the trainer's own.

An engine's word that it has loaded weights is worth nothing: some loaders return success and keep old values in packed
layers. Two questions are asked. Is the difference within what rounding explains (`floor`)? And, when the last update moved
the log-probs by more than the engine's usual rounding, did the engine move with it? The second finds weights that are one
small update old, whose difference alone would pass for rounding.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.models import LanguageModel

FLOORS = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.05}
"""Largest root mean square of engine-minus-trainer log-probs (nats) that is rounding, by the engine's dtype."""

CLEAR_MOVE = 20.0
"""A move of the log-probs is judged when it stands out of the engine's rounding by this many standard errors."""

MOVE_TOLERANCE = 0.25
"""How far from 1 the engine's share of a clear move may be."""

PROBES = 2
PROBE_TOKENS = 48


def probe_ids(vocabulary_size: int, context_tokens: int | None) -> list[list[int]]:
    """The fixed token ids that every engine of a vocabulary is asked about."""
    length = min(PROBE_TOKENS, context_tokens or PROBE_TOKENS)
    generator = torch.Generator().manual_seed(20261129)
    return [torch.randint(vocabulary_size, (length,), generator=generator).tolist() for _ in range(PROBES)]


@torch.no_grad()
def reference_logprobs(model: LanguageModel, weights: Mapping[str, Tensor], probes: list[list[int]]) -> Tensor:
    """What the trainer's network gives with `weights` for each probe token but the first, float32 and temperature 1: [N].

    Only the network's code is used: its own parameters are neither read nor changed, but for packed ones, which no training
    changes and which mean nothing outside of their layer.
    """
    device = model.device
    placed = {name: tensor.to(device) for name, tensor in weights.items() if tensor.is_floating_point()}
    ids = torch.tensor(probes, device=device)
    output = torch.func.functional_call(model.network, placed, args=(), kwargs={"input_ids": ids, "use_cache": False})
    logp = output.logits[:, :-1].float().log_softmax(-1)
    logp_N: Tensor = logp.gather(2, ids[:, 1:, None]).flatten().cpu()
    return logp_N


@dataclass(frozen=True)
class ProbeResult:
    """What one comparison found.

    rms, worst: root mean square and largest absolute value of engine-minus-trainer log-probs (nats). share: how much of the
    last update's move of the log-probs the engine followed, None when there was none or it was too small to judge.
    fault: None, or one clause that says what is wrong.
    """

    rms: float
    worst: float
    share: float | None
    fault: str | None


def compare_probe(
    engine_N: Tensor, trainer_N: Tensor, *, floor: float, before_N: Tensor | None = None, usual_rms: float | None = None
) -> ProbeResult:
    """Compare an engine's probe with the trainer's.

    before_N: the trainer's probe of the weights that the engine held before. usual_rms: `rms` of the engine's last good probe.
    """
    difference_N = engine_N.double() - trainer_N.double()
    rms = float(difference_N.square().mean().sqrt())
    worst = float(difference_N.abs().max())
    if not math.isfinite(rms):
        return ProbeResult(rms, worst, None, "its log-probs are not finite")
    share = None
    if before_N is not None and usual_rms is not None:
        share = _share_of_move(engine_N.double(), trainer_N.double(), before_N.double(), usual_rms)
    if rms > floor:
        fault = f"its log-probs are off by {rms:.2g} nats (root mean square; rounding explains {floor:.2g})"
    elif share is not None and abs(share - 1) > MOVE_TOLERANCE:
        fault = f"it followed only {share:.0%} of the last update" if share < 1 else f"it moved {share:.0%} of the last update"
    else:
        fault = None
    return ProbeResult(rms, worst, share, fault)


def _share_of_move(engine_N: Tensor, trainer_N: Tensor, before_N: Tensor, usual_rms: float) -> float | None:
    """Regression of the engine's move on the trainer's, None when the trainer's move is lost in rounding."""
    move_N = trainer_N - before_N
    norm = float(move_N.norm())
    if norm < CLEAR_MOVE * max(usual_rms, 1e-6):
        return None
    return float((engine_N - before_N) @ move_N) / norm**2
