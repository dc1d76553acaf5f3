"""A plain network's arithmetic without gradients, on a copy of its weights laid out for few and large matrix products.

Query, key and value are one product, gate and up another; the norms' weights are multiplied into the matrices that read
them, and so is the scale of the dot products. The two coordinates that a rotary embedding turns together stand side by
side, so that turning is one multiplication of complex numbers: the order of coordinates within a head is free, for only
dot products of queries and keys ever see it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from gmc.plain.structure import PlainLayer, PlainNorm, PlainStructure

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, query_NHC, key_NKC, value_NKD) to output [N, H·D]. Queries and keys are turned by the caller: they are given as
D / 2 complex numbers."""


@dataclass(frozen=True)
class Linear:
    """weight_OI, bias_O of a product x · weightᵀ + bias."""

    weight_OI: Tensor
    bias_O: Tensor | None

    def __call__(self, x_NI: Tensor) -> Tensor:
        return linear(x_NI, self.weight_OI, self.bias_O)

    def added_to(self, x_NO: Tensor, x_NI: Tensor) -> Tensor:
        """The product added to `x_NO`."""
        if self.bias_O is None:
            return torch.addmm(x_NO, x_NI, self.weight_OI.T)
        return x_NO + self(x_NI)


@dataclass(frozen=True)
class Norm:
    """x / √(mean x² + ε) over the last dimension of `size`, without a weight."""

    epsilon: Tensor
    size: int

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.factor(x)

    def factor(self, x: Tensor) -> Tensor:
        """What x is multiplied by."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.addcmul(self.epsilon, length, length, value=1 / self.size).rsqrt_()


@dataclass(frozen=True)
class DecoderLayer:
    """One layer. head_weights_ND: weights of the norms of H query and K key heads, None without such norms."""

    attention_norm: Norm
    query_key_value: Linear
    head_norm: Norm | None
    head_weights_ND: Tensor | None
    output: Linear
    mlp_norm: Norm
    gate_up: Linear
    activation: Callable[[Tensor], Tensor]
    down: Linear


class PlainDecoder:
    """A copy of a plain network's weights as they are now, and its forward pass over N tokens in any attention.

    vocabulary_size: rows of the head that are computed.
    """

    def __init__(self, structure: PlainStructure, vocabulary_size: int) -> None:
        self.heads, self.key_heads, self.head_dim = structure.heads, structure.key_heads, structure.head_dim
        self._structure = structure
        self._layers = [_copied(layer, structure) for layer in structure.layers]
        self._norm = _norm(structure.norm)
        head = structure.head
        bias_V = None if head.bias is None else head.bias[:vocabulary_size]
        self._head = Linear(head.weight[:vocabulary_size] * structure.norm.weight, bias_V)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    def rotations(self, positions: int) -> Tensor:
        """Factors cos + i·sin of positions 0 … positions−1, for one head: rotations_T1C, C = D / 2."""
        embedding_weight = self._structure.embedding.weight
        ids = torch.arange(positions, device=embedding_weight.device).unsqueeze(0)
        cos_TD, sin_TD = (part[0].float() for part in self._structure.rotation(embedding_weight, ids))
        half = self.head_dim // 2
        return torch.complex(cos_TD[:, :half], sin_TD[:, :half]).unsqueeze(1)

    def body(self, ids_N: Tensor, attend: Attend) -> Tensor:
        """Hidden states behind the last layer, before the final norm: hidden_NE."""
        x_NE = embedding(ids_N, self._structure.embedding.weight)
        rotated = self.heads + self.key_heads
        for index, layer in enumerate(self._layers):
            mixed_NAD = layer.query_key_value(layer.attention_norm(x_NE)).view(len(ids_N), -1, self.head_dim)
            turned_NAD = mixed_NAD[:, :rotated]
            if layer.head_norm is not None and layer.head_weights_ND is not None:
                turned_NAD = layer.head_norm(turned_NAD).mul_(layer.head_weights_ND)
            turned_NAC = torch.view_as_complex(turned_NAD.view(len(ids_N), rotated, -1, 2))
            query_NHC, key_NKC = turned_NAC[:, : self.heads], turned_NAC[:, self.heads :]
            x_NE = layer.output.added_to(x_NE, attend(index, query_NHC, key_NKC, mixed_NAD[:, rotated:]))
            gate_NM, up_NM = layer.gate_up(layer.mlp_norm(x_NE)).chunk(2, dim=1)
            x_NE = layer.down.added_to(x_NE, layer.activation(gate_NM).mul_(up_NM))
        return x_NE

    def logits(self, hidden_NE: Tensor) -> Tensor:
        """Logits of the next token, of the tokenizer's ids: logits_NV."""
        return self._head(self._norm(hidden_NE))


def _copied(layer: PlainLayer, structure: PlainStructure) -> DecoderLayer:
    query, key = (_paired(linear, structure.head_dim) for linear in (layer.query, layer.key))
    head_norm, head_weights_ND = None, None
    if layer.query_norm is None or layer.key_norm is None:
        query = Linear(query.weight_OI * structure.scale, None if query.bias_O is None else query.bias_O * structure.scale)
    else:
        head_norm = _norm(layer.query_norm)
        order = _pairs(structure.head_dim)
        query_D, key_D = layer.query_norm.weight[order] * structure.scale, layer.key_norm.weight[order]
        head_weights_ND = torch.cat((query_D.expand(structure.heads, -1), key_D.expand(structure.key_heads, -1)))
    value = Linear(layer.value.weight, layer.value.bias)
    gate, up = (Linear(linear.weight, linear.bias) for linear in (layer.gate, layer.up))
    return DecoderLayer(
        attention_norm=_norm(layer.attention_norm),
        query_key_value=_stacked([query, key, value], layer.attention_norm.weight),
        head_norm=head_norm,
        head_weights_ND=head_weights_ND,
        output=Linear(layer.output.weight, layer.output.bias),
        mlp_norm=_norm(layer.mlp_norm),
        gate_up=_stacked([gate, up], layer.mlp_norm.weight),
        activation=layer.activation,
        down=Linear(layer.down.weight, layer.down.bias),
    )


def _norm(norm: PlainNorm) -> Norm:
    return Norm(torch.full((1,), norm.epsilon), norm.weight.shape[0])


def _pairs(head_dim: int) -> Tensor:
    """The coordinates of a head in the order 0, D/2, 1, D/2 + 1, …"""
    return torch.arange(head_dim).reshape(2, -1).T.reshape(-1)


def _paired(linear: torch.nn.Linear, head_dim: int) -> Linear:
    """The rows of each head in the order of `_pairs`."""
    rows = torch.arange(linear.weight.shape[0]).reshape(-1, head_dim)[:, _pairs(head_dim)].reshape(-1)
    return Linear(linear.weight[rows], None if linear.bias is None else linear.bias[rows])


def _stacked(parts: list[Linear], norm_weight_I: Tensor) -> Linear:
    """Several products of one input as one, which takes that input without its norm's weight."""
    weight_OI = torch.cat([part.weight_OI for part in parts]) * norm_weight_I
    if all(part.bias_O is None for part in parts):
        return Linear(weight_OI, None)
    return Linear(weight_OI, torch.cat([_bias(part) for part in parts]))


def _bias(part: Linear) -> Tensor:
    return part.weight_OI.new_zeros(part.weight_OI.shape[0]) if part.bias_O is None else part.bias_O
