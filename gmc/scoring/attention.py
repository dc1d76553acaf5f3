"""Exact attention over a packed micro-batch in which all responses of a group share one copy of their prompt.

A response token attends to its prompt and to its own response up to itself. The two parts are computed apart and merged by
their log-sum-exps, so nothing is repeated, padded to the longest prompt or masked. The backward pass of a flash kernel
needs only the merged output and the merged log-sum-exp to give the exact gradient of each part; blockwise attention over
several devices rests on the same identity (Liu et al., Ring Attention, arXiv 2310.01889).
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from gmc.scoring.layout import AttentionLayout, Bucket
from gmc.scoring.short import is_short, short_attention, short_layout
from gmc.scoring.varlen import runs_varlen, varlen_attention

SHARED_PROMPT = "gmc_shared_prompt"
"""The name under which transformers finds this attention."""

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
"""Private operators of torch; a release may drop or change them, and then the public one is used."""

UNBOUNDED = 1e30
"""A log-sum-exp far above any score, and finite, so that no kernel meets infinity."""


_assumed_varlen: ContextVar[bool] = ContextVar("gmc_assumed_varlen", default=False)


@contextlib.contextmanager
def varlen_assumed() -> Iterator[None]:
    """Within the context attention takes the path of a GPU in half precision, for counting memory with fake tensors."""
    token = _assumed_varlen.set(True)
    try:
        yield
    finally:
        _assumed_varlen.reset(token)


class UnsupportedAttentionError(Exception):
    """The network asks its attention for something that the packed form does not do."""


class FlashKernels(NamedTuple):
    """The CPU flash kernel: forward(q, k, v, dropout, causal, scale=) to (output, log-sum-exp), and its backward."""

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


@cache
def flash_kernels() -> FlashKernels | None:
    """The CPU flash kernel of this torch, None where it is missing or no longer what it was: tried as it is used here."""
    with torch.autocast("cpu", enabled=False), torch.inference_mode(False), torch.enable_grad():
        try:
            kernels = FlashKernels(getattr(torch.ops.aten, FORWARD), getattr(torch.ops.aten, BACKWARD))
            as_before = _agrees(kernels, keys=6, causal=True) and _agrees(kernels, keys=5, causal=False)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return None
    return kernels if as_before else None


def _agrees(kernels: FlashKernels, *, keys: int, causal: bool) -> bool:
    """Whether both kernels give what softmax gives, for two query heads that share a key head."""
    query = torch.linspace(-1, 1, 48, dtype=torch.float32, device="cpu").reshape(1, 2, 6, 4)
    key = query[:, :1, :keys]
    output, logsumexp = kernels.forward(query, key, key, 0.0, causal, scale=0.5)
    grads = kernels.backward(query, query, key, key, output, logsumexp, 0.0, causal, scale=0.5)
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, key)]
    scores = leaves[0] @ leaves[1].mT * 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    wanted = scores.softmax(-1) @ leaves[2]
    wanted_grads = torch.autograd.grad(wanted, leaves, query)
    pairs = zip((output, logsumexp, *grads), (wanted, scores.logsumexp(-1), *wanted_grads), strict=True)
    return all(found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5) for found, expected in pairs)


def shared_prompt_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The transformers attention interface: query [1, H, N, D], key and value [1, K, N, D] to output [1, N, H, D].

    `gmc_layout` among the keyword arguments says who attends to whom; the mask is not read. Raises
    `UnsupportedAttentionError` for dropout, soft caps, sinks and position biases.
    """
    layout: AttentionLayout | None = kwargs.get("gmc_layout")
    unsupported = [name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None]
    if layout is None or dropout or unsupported:
        raise UnsupportedAttentionError(f"{type(module).__name__}: {unsupported or 'dropout or no layout'}")
    # Under autocast, norms and rotary embeddings leave queries and keys in float32; values are as the projections made them.
    query_NHD, key_NKD, value_NKD = (tensor.to(value.dtype).transpose(1, 2)[0] for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return packed_attention(query_NHD, key_NKD, value_NKD, layout, scale).unsqueeze(0), None


def packed_attention(query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, layout: AttentionLayout, scale: float) -> Tensor:
    """output_NHD, differentiable, in the way that is right and fast for these tensors and lengths."""
    device, dtype = query_NHD.device, value_NKD.dtype
    if _assumed_varlen.get():
        return varlen_attention(query_NHD, key_NKD, value_NKD, layout.spans, scale)
    if device.type == "cpu" and flash_kernels() is not None:
        if dtype == torch.float32 and is_short(layout):
            heads = query_NHD.shape[1], key_NKD.shape[1]
            return short_attention(query_NHD, key_NKD, value_NKD, short_layout(layout, *heads), scale)
        output_NHD: Tensor = _PackedAttention.apply(query_NHD, key_NKD, value_NKD, layout, scale)  # type: ignore[no-untyped-call]
        return output_NHD
    if runs_varlen(device.type, dtype, query_NHD.shape[2], _capability(device)):
        return varlen_attention(query_NHD, key_NKD, value_NKD, layout.spans, scale)
    return repeated_prompt_attention(query_NHD, key_NKD, value_NKD, layout, scale)


@cache
def _capability(device: torch.device) -> tuple[int, int] | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.cuda else None


ALL_ATTENTION_FUNCTIONS.register(SHARED_PROMPT, shared_prompt_attention)


def repeated_prompt_attention(
    query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, layout: AttentionLayout, scale: float
) -> Tensor:
    """The same attention by torch's public operator, where no flash kernel is called directly (float32 on a GPU): output_NHD.

    Keys and values of a prompt are repeated for each of its responses, which are padded to the longest in their group.
    """
    key_NHD, value_NHD = (_repeat_heads(tensor, query_NHD.shape[1]) for tensor in (key_NKD, value_NKD))
    outputs: list[Tensor] = []
    for prompt in layout.prompts:
        query, key, value = (_rows(tensor, prompt.start, prompt.stop) for tensor in (query_NHD, key_NHD, value_NHD))
        outputs.append(_flat(scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)))
    for prefix in layout.prefixes:
        index, slots = prefix.padded(query_NHD.device)
        segments, length = len(prefix.reads), max(read.length for read in prefix.reads)
        shape = (segments, length)
        query = query_NHD.index_select(0, index).reshape(*shape, *query_NHD.shape[1:]).transpose(1, 2)
        key, value = (
            torch.cat(
                (
                    _rows(tensor, prefix.prompt_start, prefix.prompt_stop).expand(segments, -1, -1, -1),
                    tensor.index_select(0, index).reshape(*shape, *query_NHD.shape[1:]).transpose(1, 2),
                ),
                dim=2,
            )
            for tensor in (key_NHD, value_NHD)
        )
        mask = causal_lower_right(length, key.shape[2])
        output = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        outputs.append(_flat(output).index_select(0, slots))
    return torch.cat(outputs)


def _repeat_heads(tensor_NKD: Tensor, heads: int) -> Tensor:
    return tensor_NKD if tensor_NKD.shape[1] == heads else tensor_NKD.repeat_interleave(heads // tensor_NKD.shape[1], dim=1)


def _rows(tensor_NHD: Tensor, start: int, stop: int) -> Tensor:
    """Packed rows as a kernel's [1, H, L, D], without a copy."""
    return tensor_NHD[start:stop].transpose(0, 1).unsqueeze(0)


def _bucket(tensor_NHD: Tensor, padded_MHD: Tensor, bucket: Bucket) -> Tensor:
    """A bucket's segments as [segments, H, L, D]. padded_MHD: the rows at the layout's `padded` positions."""
    if bucket.segments == 1:
        return _rows(tensor_NHD, bucket.start, bucket.start + bucket.length)
    own = padded_MHD[bucket.start : bucket.start + bucket.segments * bucket.length]
    return own.view(bucket.segments, bucket.length, *own.shape[1:]).transpose(1, 2)


def _flat(tensor_SHLD: Tensor) -> Tensor:
    """[S, H, L, ...] to [S·L, H, ...]."""
    return tensor_SHLD.transpose(1, 2).flatten(0, 1)


def _require_kernels() -> FlashKernels:
    kernels = flash_kernels()
    assert kernels is not None
    return kernels


class _PackedAttention(torch.autograd.Function):
    """Own-segment and prompt attention by the CPU flash kernel, merged by log-sum-exp."""

    @staticmethod
    def forward(
        ctx: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, layout: AttentionLayout, scale: float
    ) -> Tensor:
        flash, buckets = _require_kernels().forward, layout.buckets
        tensors = [(tensor, tensor.index_select(0, buckets.padded)) for tensor in (query_NHD, key_NKD, value_NKD)]
        outputs: list[Tensor] = []
        logsumexps: list[Tensor] = []
        for bucket in buckets.buckets:
            output, logsumexp = flash(*(_bucket(*pair, bucket) for pair in tensors), 0.0, True, scale=scale)
            outputs.append(_flat(output))
            logsumexps.append(_flat(logsumexp))
        output_NHD = torch.cat(outputs).index_select(0, buckets.restore)
        logsumexp_NH = torch.cat(logsumexps).index_select(0, buckets.restore)
        for prefix in layout.prefixes:
            read = slice(prefix.start, prefix.stop)
            output, logsumexp = flash(
                _rows(query_NHD, prefix.start, prefix.stop),
                _rows(key_NKD, prefix.prompt_start, prefix.prompt_stop),
                _rows(value_NKD, prefix.prompt_start, prefix.prompt_stop),
                0.0,
                False,
                scale=scale,
            )
            own, prompt = logsumexp_NH[read], _flat(logsumexp)
            share = torch.sigmoid(prompt - own).unsqueeze(-1)
            output_NHD[read] = torch.lerp(output_NHD[read].float(), _flat(output).float(), share).to(output_NHD.dtype)
            logsumexp_NH[read] = torch.logaddexp(own, prompt)
        ctx.save_for_backward(query_NHD, key_NKD, value_NKD, output_NHD, logsumexp_NH)
        ctx.layout, ctx.scale = layout, scale
        return output_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHD: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query_NHD, key_NKD, value_NKD, output_NHD, logsumexp_NH = ctx.saved_tensors
        layout, scale, flash_backward = ctx.layout, ctx.scale, _require_kernels().backward
        buckets = layout.buckets
        # At padding an unbounded log-sum-exp makes all weights exp(score - lse) zero, so that it adds nothing to any gradient.
        logsumexp_M1 = logsumexp_NH.index_select(0, buckets.padded).index_fill_(0, buckets.padding, UNBOUNDED).unsqueeze(-1)
        tensors = [
            (tensor, tensor.index_select(0, buckets.padded)) for tensor in (grad_NHD, query_NHD, key_NKD, value_NKD, output_NHD)
        ]
        grads: list[tuple[Tensor, ...]] = []
        for bucket in buckets.buckets:
            parts = [_bucket(*pair, bucket) for pair in tensors]
            logsumexp = _bucket(logsumexp_NH.unsqueeze(-1), logsumexp_M1, bucket).squeeze(-1)
            grads.append(tuple(map(_flat, flash_backward(*parts, logsumexp, 0.0, True, scale=scale))))
        grad_query, grad_key, grad_value = (
            torch.cat(part).index_select(0, buckets.restore) for part in zip(*grads, strict=True)
        )
        for prefix in layout.prefixes:
            read, prompt = (prefix.start, prefix.stop), (prefix.prompt_start, prefix.prompt_stop)
            part_query, part_key, part_value = flash_backward(
                _rows(grad_NHD, *read),
                _rows(query_NHD, *read),
                _rows(key_NKD, *prompt),
                _rows(value_NKD, *prompt),
                _rows(output_NHD, *read),
                logsumexp_NH[slice(*read)].T.unsqueeze(0),
                0.0,
                False,
                scale=scale,
            )
            grad_query[slice(*read)] += _flat(part_query)
            grad_key[slice(*prompt)] += _flat(part_key)
            grad_value[slice(*prompt)] += _flat(part_value)
        return grad_query, grad_key, grad_value, None, None
