"""Where a network of the plain kind keeps its matrices: embedding, then per layer attention and gated MLP, then the head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gmc.models import LanguageModel

STEADY_ROTATIONS = frozenset({"default", "linear", "llama3", "yarn"})
"""Kinds of rotary embedding whose angles depend on the position alone, not on how long the text has become."""


COPIED_BYTES = 128 * 2**20
"""The most that is copied of a network's weights at the start of a batch. Beyond, its arithmetic is matrix products anyway."""


@dataclass(frozen=True)
class PlainNorm:
    """x · weight / √(mean x² + epsilon) over the last dimension."""

    module: nn.Module
    epsilon: float

    @property
    def weight(self) -> Tensor:
        """The weight of the moment: its storage may come and go."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        return weight


@dataclass(frozen=True)
class PlainLayer:
    """Modules of one layer. query_norm, key_norm: norms of single heads (Qwen3), or None."""

    attention_norm: PlainNorm
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    query_norm: PlainNorm | None
    key_norm: PlainNorm | None
    output: nn.Linear
    mlp_norm: PlainNorm
    gate: nn.Linear
    up: nn.Linear
    activation: Callable[[Tensor], Tensor]
    down: nn.Linear


@dataclass(frozen=True)
class PlainStructure:
    """Modules of a whole network. heads, key_heads, head_dim: sizes of its attention; scale: factor of its dot products."""

    embedding: nn.Embedding
    layers: tuple[PlainLayer, ...]
    norm: PlainNorm
    head: nn.Linear
    rotation: Callable[..., tuple[Tensor, Tensor]]
    heads: int
    key_heads: int
    head_dim: int
    scale: float


def plain_structure(model: LanguageModel) -> PlainStructure | None:
    """The network's modules when they carry the names and types of a plain network, else None.

    Names prove nothing about arithmetic (a cap, a multiplier or a layer without rotation hides behind the same ones), so
    whoever computes with this compares with the network's own forward first.
    """
    config = model.network.config.get_text_config()
    kind = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if not model.full_attention or kind not in STEADY_ROTATIONS:
        return None
    try:
        body: Any = model.network.base_model
        layers = tuple(_layer(layer) for layer in body.layers)
        head: Any = model.network.get_output_embeddings()  # type: ignore[no-untyped-call]
        first = body.layers[0].self_attn
        structure = PlainStructure(
            body.embed_tokens, layers, _norm(body.norm), head, body.rotary_emb,
            config.num_attention_heads, config.num_key_value_heads, first.head_dim, first.scaling,
        )  # fmt: skip
    except (AttributeError, IndexError):
        return None
    return structure if _as_expected(structure) else None


def small_structure(model: LanguageModel) -> PlainStructure | None:
    """The same of a float32 network on a CPU that is small enough to copy, else None."""
    structure = plain_structure(model)
    if structure is None or model.device.type != "cpu" or copied_bytes(structure) > COPIED_BYTES:
        return None
    whole = all(parameter.dtype == torch.float32 for parameter in model.network.parameters())
    return structure if whole else None


def copied_bytes(structure: PlainStructure) -> int:
    """Bytes that a `PlainDecoder` copies."""
    weights = [structure.head.weight]
    for layer in structure.layers:
        weights += [each.weight for each in (layer.query, layer.key, layer.value, layer.gate, layer.up)]
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _layer(layer: Any) -> PlainLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return PlainLayer(
        _norm(layer.input_layernorm), attention.q_proj, attention.k_proj, attention.v_proj,
        _norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        _norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        attention.o_proj, _norm(layer.post_attention_layernorm), mlp.gate_proj, mlp.up_proj, mlp.act_fn, mlp.down_proj,
    )  # fmt: skip


def _norm(norm: Any) -> PlainNorm:
    if not type(norm).__name__.endswith("RMSNorm"):
        raise AttributeError(f"{type(norm).__name__} is no RMSNorm")
    return PlainNorm(norm, norm.variance_epsilon)


def _as_expected(structure: PlainStructure) -> bool:
    """Exact types, so that adapters, quantized layers and scaled embeddings stay out, and head sizes that add up."""
    linears = [structure.head]
    for layer in structure.layers:
        linears += [layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down]
        head_norms = [norm for norm in (layer.query_norm, layer.key_norm) if norm is not None]
        if len(head_norms) == 1 or any(norm.weight.shape != (structure.head_dim,) for norm in head_norms):
            return False
        rows = layer.query.weight.shape[0], layer.key.weight.shape[0]
        if rows != (structure.heads * structure.head_dim, structure.key_heads * structure.head_dim):
            return False
    return (
        type(structure.embedding) is nn.Embedding
        and all(type(linear) is nn.Linear for linear in linears)
        and structure.head_dim % 2 == 0
    )
