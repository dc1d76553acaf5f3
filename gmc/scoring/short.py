"""Attention of short segments on a CPU by batched matrix products.

For a few dozen tokens most of a flash kernel is overhead: it computes one head of one segment at a time, in blocks meant for
thousands of keys. Here a response's keys are its prompt's and its own side by side, the query heads that share a key head are
rows of one product, and segments of similar length are one batch. Weights are kept for the backward pass, which costs memory
in proportion to the keys of a query; hence for short segments only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmc.scoring.layout import Array, AttentionLayout, Segment, pad, similar

SHORT_KEYS = 128
"""The most keys of a query, prompt and response together, for which this is the faster way."""

RATIO = 0.7
"""Segments are one batch when the shortest has at least this share of the longest one's tokens."""


@dataclass(frozen=True)
class _Batch:
    """S segments whose L queries see J keys. queries, keys: their rows among all gathered ones; hidden_S1LJ: −∞ where a query
    must not see a key, else 0."""

    segments: int
    queries: slice
    keys: slice
    hidden_S1LJ: Tensor

    def of(self, rows_RD: Tensor, rows: slice, key_heads: int) -> Tensor:
        """Its part of gathered rows, as [S·K, …, D]."""
        return rows_RD[rows].view(self.segments * key_heads, -1, rows_RD.shape[1])


@dataclass(frozen=True)
class ShortLayout:
    """Which rows of [N·H, D] queries and of [N·K, D] keys stand where, for H heads and K key heads.

    query_rows, key_rows: the row of every slot, ordered by batch, segment, key head, and for queries the heads that share it;
    padding: the slots of queries that are none; restore: the slot of each query row.
    """

    batches: tuple[_Batch, ...]
    query_rows: Tensor
    key_rows: Tensor
    padding: Tensor
    restore: Tensor


def is_short(layout: AttentionLayout) -> bool:
    """Whether no query of this layout sees more than `SHORT_KEYS` keys."""
    longest = max(segment.length for segment in layout.prompts)
    return longest + max((read.length for read in layout.reads), default=0) <= SHORT_KEYS


@lru_cache(maxsize=8)
def short_layout(layout: AttentionLayout, heads: int, key_heads: int) -> ShortLayout:
    """Batches of prompts, which see themselves, and of responses, which see their prompt first."""
    prompt_of = {read: prompt for prompt, own in zip(layout.prompts, layout.reads_P, strict=True) for read in own}
    batches: list[_Batch] = []
    queries: list[Array] = []
    keys: list[Array] = []
    valid: list[Array] = []
    for members in [*similar(layout.prompts, SHORT_KEYS, RATIO), *similar(layout.reads, SHORT_KEYS, RATIO)]:
        own_SL, is_own_SL = (part.reshape(len(members), -1) for part in pad(members))
        read_SW, is_read_SW = _prefixes([prompt_of[member] for member in members if member in prompt_of], len(members))
        own_heads = np.arange(heads).reshape(key_heads, -1, 1)
        queries.append((own_SL[:, None, None, :] * heads + own_heads).reshape(-1))
        valid.append(np.broadcast_to(is_own_SL[:, None, :], (len(members), heads, own_SL.shape[1])).reshape(-1))
        keys.append((np.hstack((read_SW, own_SL))[:, None, :] * key_heads + np.arange(key_heads)[:, None]).reshape(-1))
        hidden_S1LJ = _hidden(is_read_SW, own_SL.shape[1])
        batches.append(_Batch(len(members), _last(queries), _last(keys), hidden_S1LJ))
    query_rows, is_query = np.concatenate(queries), np.concatenate(valid)
    restore = np.empty(int(is_query.sum()), dtype=np.int64)
    restore[query_rows[is_query]] = is_query.nonzero()[0]
    indices = (query_rows, np.concatenate(keys), (~is_query).nonzero()[0], restore)
    return ShortLayout(tuple(batches), *map(torch.from_numpy, indices))


def _last(parts: Sequence[Array]) -> slice:
    """Where the last of them stands when all are one."""
    stop = sum(map(len, parts))
    return slice(stop - len(parts[-1]), stop)


def _prefixes(prompts: Sequence[Segment], segments: int) -> tuple[Array, Array]:
    """The prompts' positions, padded, and which of them are no padding; nothing for segments that are prompts themselves."""
    if not prompts:
        return np.empty((segments, 0), dtype=np.int64), np.empty((segments, 0), dtype=np.bool_)
    positions, valid = pad(prompts)
    return positions.reshape(segments, -1), valid.reshape(segments, -1)


def _hidden(is_read_SW: Array, length: int) -> Tensor:
    """Padding behind a prompt, and a segment's own later tokens; its padding stands after all its tokens."""
    seen_SLW = np.broadcast_to(is_read_SW[:, None, :], (len(is_read_SW), length, is_read_SW.shape[1]))
    own_SLL = np.broadcast_to(np.tri(length, dtype=np.bool_), (len(is_read_SW), length, length))
    seen_S1LJ = torch.from_numpy(np.concatenate((seen_SLW, own_SLL), axis=2)).unsqueeze(1)
    return torch.zeros(seen_S1LJ.shape).masked_fill_(~seen_S1LJ, -torch.inf)


def short_attention(query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, layout: ShortLayout, scale: float) -> Tensor:
    """output_NHD: [N, H, D] of float32 tensors on a CPU, differentiable."""
    output_NHD: Tensor = _ShortAttention.apply(query_NHD, key_NKD, value_NKD, layout, scale)  # type: ignore[no-untyped-call]
    return output_NHD


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, layout: ShortLayout, scale: float) -> Tensor:
        key_heads, head_dim = key_NKD.shape[1:]
        query_RD = query_NHD.reshape(-1, head_dim).index_select(0, layout.query_rows)
        key_RD, value_RD = (part.reshape(-1, head_dim).index_select(0, layout.key_rows) for part in (key_NKD, value_NKD))
        output_RD = torch.empty_like(query_RD)
        weights: list[Tensor] = []
        for batch in layout.batches:
            query, output = (batch.of(rows, batch.queries, key_heads) for rows in (query_RD, output_RD))
            key, value = (batch.of(rows, batch.keys, key_heads) for rows in (key_RD, value_RD))
            scores = _product(query, key.mT, scale)
            by_head_SHLJ = scores.view(batch.segments, -1, *batch.hidden_S1LJ.shape[2:])
            by_head_SHLJ += batch.hidden_S1LJ
            weights.append(scores.softmax(-1))
            torch.bmm(weights[-1], value, out=output)
        ctx.save_for_backward(query_RD, key_RD, value_RD, output_RD, *weights)
        ctx.layout, ctx.scale, ctx.shapes = layout, scale, (query_NHD.shape, key_NKD.shape)
        return output_RD.index_select(0, layout.restore).view(query_NHD.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHD: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query_RD, key_RD, value_RD, output_RD, *weights = ctx.saved_tensors
        layout, (query_shape, key_shape) = ctx.layout, ctx.shapes
        key_heads, head_dim = key_shape[1:]
        grad_RD = grad_NHD.reshape(-1, head_dim).index_select(0, layout.query_rows).index_fill_(0, layout.padding, 0)
        along_R1 = (grad_RD * output_RD).sum(-1, keepdim=True)
        grads = grad_query_RD, grad_key_RD, grad_value_RD = tuple(map(torch.empty_like, (query_RD, key_RD, value_RD)))
        for batch, weight in zip(layout.batches, weights, strict=True):
            grad, query, along = (batch.of(rows, batch.queries, key_heads) for rows in (grad_RD, query_RD, along_R1))
            key, value = (batch.of(rows, batch.keys, key_heads) for rows in (key_RD, value_RD))
            slope = torch.bmm(grad, value.mT).sub_(along).mul_(weight)
            _product(slope, key, ctx.scale, batch.of(grad_query_RD, batch.queries, key_heads))
            _product(slope.mT, query, ctx.scale, batch.of(grad_key_RD, batch.keys, key_heads))
            torch.bmm(weight.mT, grad, out=batch.of(grad_value_RD, batch.keys, key_heads))
        grad_key, grad_value = (
            torch.zeros(key_shape).view(-1, head_dim).index_add_(0, layout.key_rows, rows).view(key_shape) for rows in grads[1:]
        )
        return grad_query_RD.index_select(0, layout.restore).view(query_shape), grad_key, grad_value, None, None


def _product(left: Tensor, right: Tensor, factor: float, out: Tensor | None = None) -> Tensor:
    """left · right · factor, in one pass over the result."""
    return torch.baddbmm(left.new_empty(1, 1, 1), left, right, beta=0, alpha=factor, out=out)
