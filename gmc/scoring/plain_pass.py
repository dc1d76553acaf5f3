"""Packed scoring of a small plain network on a CPU, by few products and with most of its backward pass written out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from gmc.models import LanguageModel, random_ids, without_ids
from gmc.plain.structure import PlainStructure, small_structure
from gmc.plain.trained import TrainedDecoder, kept_logp
from gmc.scoring.attention import packed_attention
from gmc.scoring.head import token_entropies, token_logp
from gmc.scoring.packing import Packed
from gmc.scoring.passes import PackedPass, TokenScores
from gmc.scoring.plan import MicroBatch, make_plan

KEPT_BYTES = 16 * 2**20
"""The most that is kept of log-probs of the whole vocabulary; beyond, they are computed in chunks, twice."""

TOLERANCE = 1e-3
"""Largest difference of a log-prob, or of a gradient beside its largest value, that counts as rounding."""


@dataclass(frozen=True)
class PlainPass(PackedPass):
    """Scores a micro-batch without the network's own modules; their weights are read, and get their gradients."""

    structure: PlainStructure = field(kw_only=True)

    def run_packed(self, packed: Packed, *, entropies: bool) -> TokenScores:
        decoder = TrainedDecoder(self.structure, self.vocabulary_size)

        def attend(query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor) -> Tensor:
            return packed_attention(query_NHD, key_NKD, value_NKD, packed.layout, 1.0)

        hidden_NE = decoder.hidden(packed.input_ids_N, packed.position_ids_N, attend)
        hidden_RE, head = decoder.head(hidden_NE.index_select(0, packed.predict_R))
        weight_VE, bias_V = head.weight_OI, head.bias_O
        if self.absent_ids:
            bias_V = without_ids(weight_VE.new_zeros(len(weight_VE)) if bias_V is None else bias_V, self.absent_ids)
        small = 4 * len(packed.targets_R) * len(weight_VE) <= KEPT_BYTES
        logp = kept_logp if small else token_logp
        logp_R = logp(hidden_RE, weight_VE, bias_V, packed.targets_R, self.temperature)
        entropies_R = token_entropies(hidden_RE, weight_VE, bias_V, self.temperature) if entropies else None
        return TokenScores(logp_R, packed.rows_R, packed.columns_R, entropies_R)


def trained_structure(model: LanguageModel) -> PlainStructure | None:
    """The structure of a small plain float32 network on a CPU whose `PlainPass` gives the log-probs and gradients of its packed
    pass; else None. To be asked of a model that may be packed."""
    structure = small_structure(model)
    if structure is None or not all(isinstance(layer.activation, nn.SiLU | SiLUActivation) for layer in structure.layers):
        return None
    generator = torch.Generator().manual_seed(0)
    prompts, responses = ([random_ids(model, length, generator) for length in lengths] for lengths in ((5, 3), (4, 1, 2, 6)))
    (micro_batch,) = make_plan([5, 3], [[4, 1], [2, 6]], 1024)
    settings = (model.network, model.vocabulary_size, 1.0, None, False, None, model.absent_ids)
    passes = (PlainPass(*settings, structure=structure), PackedPass(*settings))
    found = [_logp_and_gradients(one, micro_batch, prompts, [responses[:2], responses[2:]]) for one in passes]
    return structure if all(_agree(*pair) for pair in zip(*found, strict=True)) else None


def _logp_and_gradients(
    one: PackedPass, micro_batch: MicroBatch, prompts: Sequence[list[int]], responses: Sequence[list[list[int]]]
) -> list[Tensor]:
    leaves = [parameter for parameter in one.network.parameters() if parameter.requires_grad]
    with torch.inference_mode(False), torch.enable_grad(), one.active():
        logp_R = one.run(micro_batch, prompts, responses, entropies=False).logp_R
        weights_R = torch.linspace(-1, 1, len(logp_R))
        gradients = torch.autograd.grad(logp_R, leaves, weights_R, allow_unused=True)
    return [logp_R.detach(), *(torch.zeros(1) if gradient is None else gradient for gradient in gradients)]


def _agree(found: Tensor, expected: Tensor) -> bool:
    largest = max(float(expected.abs().max()), 1.0)
    return found.shape == expected.shape and float((found - expected).abs().max()) <= TOLERANCE * largest
