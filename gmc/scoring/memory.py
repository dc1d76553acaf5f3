"""How much a micro-batch keeps for its backward pass, counted on fake tensors: no weights, no GPU, any architecture.

The packed pass itself runs on a network of fake parameters, along the path that a GPU in half precision takes, and every
tensor that autograd saves is counted once. Counts of two sizes give the line through them, which the packed pass follows
exactly: nothing in it grows faster than the tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from gmc.scoring.attention import varlen_assumed
from gmc.scoring.packing import pack
from gmc.scoring.passes import PackedPass
from gmc.scoring.plan import make_plan

SIZES = (64, 192)
"""Tokens of the two micro-batches counted, nearly all of one response."""


@dataclass(frozen=True)
class NetworkSize:
    """Numbers of a network. parameters: distinct ones; layers: blocks that checkpointing recomputes one at a time; outside:
    parameters that are in no layer."""

    parameters: int
    layers: int
    outside: int


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps of a micro-batch: `fixed` (casts of the weights among them) + `per_token` · tokens."""

    fixed: int
    per_token: int

    def of(self, tokens: int) -> int:
        """Bytes of a micro-batch of so many input tokens."""
        return self.fixed + self.per_token * tokens


def fake_network(config: PretrainedConfig) -> PreTrainedModel:
    """The network of a config with parameters that have shapes and no values."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    network.train(False)
    return network


def network_size(network: PreTrainedModel) -> NetworkSize:
    """Parameters and layers."""
    layers = int(getattr(network.config.get_text_config(), "num_hidden_layers", 1))
    blocks = (module for module in network.modules() if isinstance(module, GradientCheckpointingLayer))
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    outside = sum(parameter.numel() for parameter in network.parameters() if id(parameter) not in inside)
    return NetworkSize(sum(parameter.numel() for parameter in network.parameters()), layers, outside)


def saved_bytes(network: PreTrainedModel, dtype: torch.dtype | None, *, checkpointing: bool) -> SavedBytes:
    """What is kept for backward by a network that `fake_network` gave, with products in `dtype` (None: float32)."""
    few, many = (_count(network, dtype, checkpointing, tokens) for tokens in SIZES)
    per_token = (many - few) // (SIZES[1] - SIZES[0])
    return SavedBytes(few - per_token * SIZES[0], per_token)


def _count(network: PreTrainedModel, dtype: torch.dtype | None, checkpointing: bool, tokens: int) -> int:
    prompts, responses = [[0]], [[[0] * tokens]]  # tokens of a prompt keep a little less
    (micro_batch,) = make_plan([1], [[tokens]], tokens)
    own = {_storage(tensor) for tensor in (*network.parameters(), *network.buffers())}
    seen: dict[int, int] = {}
    kept: list[Tensor] = []  # as long as a tensor lives, no other one has its storage

    def save(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in own:
            kept.append(tensor)
            seen[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    rows = int(network.get_output_embeddings().weight.shape[0])  # type: ignore[no-untyped-call]
    scoring = PackedPass(network, rows, 1.0, dtype, checkpointing)
    packed = pack(micro_batch, prompts, responses, torch.device("cpu"))
    fake_mode: FakeTensorMode = next(network.parameters()).fake_mode  # type: ignore[attr-defined]
    with (
        torch.enable_grad(),
        varlen_assumed(),
        scoring.active(),
        fake_mode,
        torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
    ):
        scoring.run_packed(packed, entropies=False)
    return sum(seen.values())


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
