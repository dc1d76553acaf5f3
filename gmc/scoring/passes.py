"""The two ways to run a micro-batch through a network: packed with shared prompts, or the network's own stock forward."""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from gmc.errors import UsageError
from gmc.models import attention, autocast, without_ids
from gmc.scoring.attention import SHARED_PROMPT
from gmc.scoring.compiled import CompiledModules, running
from gmc.scoring.head import logits_entropies, logits_logp, token_entropies, token_logp
from gmc.scoring.packing import Packed, pack
from gmc.scoring.plan import Masks, MicroBatch, Piece, sampled_places

Prompts = Sequence[Sequence[int]]
Responses = Sequence[Sequence[Sequence[int]]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenScores:
    """Scores of the R sampled tokens of a micro-batch and their places in a [B, T] tensor of sampled tokens.

    logp_R carries the graph when gradients are on. entropies_R: None unless asked for.
    """

    logp_R: Tensor
    rows_R: Tensor
    columns_R: Tensor
    entropies_R: Tensor | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        """All of them that are there."""
        own = (self.logp_R, self.rows_R, self.columns_R)
        return own if self.entropies_R is None else (*own, self.entropies_R)


@dataclass(frozen=True)
class Pass(ABC):
    """One way to score a micro-batch. vocabulary_size: ids of the tokenizer, of which absent_ids are no token and have
    probability 0; compute_dtype: autocast type, None for float32."""

    network: PreTrainedModel
    vocabulary_size: int
    temperature: float
    compute_dtype: torch.dtype | None
    checkpointing: bool
    compiled: CompiledModules | None = None
    absent_ids: tuple[int, ...] = ()

    @abstractmethod
    def run(
        self,
        micro_batch: MicroBatch,
        prompts_P: Prompts,
        responses_PG: Responses,
        masks_PG: Masks = None,
        *,
        entropies: bool,
    ) -> TokenScores:
        """Log-probs of every sampled token of the micro-batch, with a graph when gradients are enabled."""

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Hold this open around `run` and around the backward pass that follows."""
        with checkpointed(self.network, self.checkpointing), running(self.compiled):
            yield


class PackedPass(Pass):
    """Every prompt once, every response against it, no padding, logits only in chunks."""

    def run(
        self,
        micro_batch: MicroBatch,
        prompts_P: Prompts,
        responses_PG: Responses,
        masks_PG: Masks = None,
        *,
        entropies: bool,
    ) -> TokenScores:
        packed = pack(micro_batch, prompts_P, responses_PG, self.network.device, masks_PG)
        return self.run_packed(packed, entropies=entropies)

    def run_packed(self, packed: Packed, *, entropies: bool) -> TokenScores:
        """`run` on a micro-batch that is laid out already."""
        head = self.network.get_output_embeddings()  # type: ignore[no-untyped-call]
        with autocast(self.network, self.compute_dtype):
            output = self.network.base_model(
                input_ids=packed.input_ids_N.unsqueeze(0),
                position_ids=packed.position_ids_N.unsqueeze(0),
                # A mask of four dimensions is handed through as it is; the attention reads the layout instead.
                attention_mask=head.weight.new_zeros((1, 1, 1, 1)),
                use_cache=False,
                gmc_layout=packed.layout,
            )
        hidden_RD = output.last_hidden_state[0].index_select(0, packed.predict_R)
        weight_VD, bias_V = head_rows(head, self.vocabulary_size, self.absent_ids)
        logp_R = token_logp(hidden_RD, weight_VD, bias_V, packed.targets_R, self.temperature)
        entropies_R = token_entropies(hidden_RD, weight_VD, bias_V, self.temperature) if entropies else None
        return TokenScores(logp_R, packed.rows_R, packed.columns_R, entropies_R)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The same with attention that shares prompts, and with the head's precision."""
        with (
            attention(self.network, SHARED_PROMPT),
            super().active(),
            _head_precision(self.network, self.compute_dtype),
        ):
            yield


class StockPass(Pass):
    """The network's own forward, one group at a time, padded right: right for every causal model, soft caps included."""

    def run(
        self,
        micro_batch: MicroBatch,
        prompts_P: Prompts,
        responses_PG: Responses,
        masks_PG: Masks = None,
        *,
        entropies: bool,
    ) -> TokenScores:
        parts = [self._piece(piece, prompts_P, responses_PG, masks_PG, entropies) for piece in micro_batch.pieces]
        columns = ("logp_R", "rows_R", "columns_R", *(["entropies_R"] if entropies else []))
        return TokenScores(*(torch.cat([getattr(part, name) for part in parts]) for name in columns))

    def _piece(
        self, piece: Piece, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks, entropies: bool
    ) -> TokenScores:
        device = self.network.device
        prompt, responses = prompts_P[piece.group], [responses_PG[piece.group][sample] for sample in piece.samples]
        longest = max(map(len, responses))
        inputs = [[*prompt, *response[:-1]] for response in responses]
        width = len(prompt) + longest - 1
        input_ids = torch.tensor([row + [prompt[0]] * (width - len(row)) for row in inputs], device=device)
        lengths = torch.tensor([len(row) for row in inputs], device=device)
        steps = torch.arange(width, device=device)
        with autocast(self.network, self.compute_dtype):
            logits_STV = self.network(
                input_ids=input_ids,
                attention_mask=(steps < lengths[:, None]).long(),
                position_ids=steps.expand(len(inputs), -1),
                use_cache=False,
                logits_to_keep=longest,
            ).logits
        masks = [None if masks_PG is None else masks_PG[piece.group][sample] for sample in piece.samples]
        places = [sampled_places(len(response), mask) for response, mask in zip(responses, masks, strict=True)]
        mask_ST = torch.zeros(len(responses), longest, dtype=torch.bool)
        for row, own in enumerate(places):
            mask_ST[row, own] = True
        columns_R = (mask_ST.cumsum(-1) - 1)[mask_ST].to(device)
        mask_ST = mask_ST.to(device)
        logits_RV = without_ids(logits_STV[..., : self.vocabulary_size][mask_ST], self.absent_ids)
        targets = [response[place] for response, own in zip(responses, places, strict=True) for place in own]
        targets_R = torch.tensor(targets, dtype=torch.long, device=device)
        rows = torch.tensor([piece.group * len(responses_PG[piece.group]) + sample for sample in piece.samples], device=device)
        logp_R = logits_logp(logits_RV, targets_R, self.temperature)
        entropies_R = logits_entropies(logits_RV, self.temperature) if entropies else None
        return TokenScores(logp_R, rows[mask_ST.nonzero(as_tuple=True)[0]], columns_R, entropies_R)


def head_rows(head: torch.nn.Module, vocabulary_size: int, absent_ids: Sequence[int] = ()) -> tuple[Tensor, Tensor | None]:
    """The output layer's weight and bias for the tokenizer's ids, a bias of −inf at those that are no token. Slicing only
    where it is padded: a slice's gradient is a full copy of the head's."""
    weight, bias = head.weight, getattr(head, "bias", None)
    assert isinstance(weight, Tensor)
    if weight.shape[0] != vocabulary_size:
        weight, bias = weight[:vocabulary_size], None if bias is None else bias[:vocabulary_size]
    if absent_ids:
        bias = without_ids(weight.new_zeros(vocabulary_size) if bias is None else bias, absent_ids)
    return weight, bias


@contextlib.contextmanager
def _head_precision(network: PreTrainedModel, dtype: torch.dtype | None) -> Iterator[None]:
    """Let a GPU multiply the head in TF32 when the body is bfloat16: hidden states lose nothing, weights keep three more bits
    than bfloat16 would, and full float32 products would take longer than the rest of the network."""
    if network.device.type != "cuda" or dtype in (None, torch.float32):
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def checkpointed(network: PreTrainedModel, enabled: bool) -> Iterator[None]:
    """Recompute each layer in backward while this is open and `enabled`.

    Only the checkpointing layers themselves are put in training mode, so no dropout below them wakes up. Raises `UsageError`
    for a network without such layers.
    """
    if not enabled:
        yield
        return
    layers = [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        name = type(network).__name__
        raise UsageError(f"{name} has no layers that can be recomputed; set train.activation_checkpointing = false.")
    network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
        network.gradient_checkpointing_disable()  # type: ignore[no-untyped-call]
