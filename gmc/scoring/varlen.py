"""Shared-prompt attention on a GPU by torch's variable-length kernel: nothing is padded, and no head and no prompt is repeated.

Two calls: every segment causally on itself, then all responses on their prompts; merged by log-sum-exp as on a CPU. The
backward pass is called by hand with the merged output and the merged log-sum-exp, which gives the exact gradient of each part
(Liu et al., arXiv 2310.01889). Autograd through the merge would be silently wrong: the operator's own backward pass ignores
the gradient of the log-sum-exp.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmc.scoring.layout import Spans

LARGEST_HEAD = 256
"""Features of a head that the kernel takes, a multiple of 8."""


def runs_varlen(device_type: str, dtype: torch.dtype, head_size: int, capability: tuple[int, int] | None) -> bool:
    """Whether the variable-length kernel takes these: half precision on an NVIDIA GPU from Ampere (capability 8.0) on."""
    fits = head_size <= LARGEST_HEAD and head_size % 8 == 0
    return device_type == "cuda" and dtype in (torch.bfloat16, torch.float16) and fits and (capability or (0, 0)) >= (8, 0)


def varlen_attention(query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, spans: Spans, scale: float) -> Tensor:
    """output_NHD: [N, H, D], differentiable. K key and value heads, each shared by H / K query heads."""
    output_NHD: Tensor = _VarlenAttention.apply(  # type: ignore[no-untyped-call]
        query_NHD.contiguous(), key_NKD.contiguous(), value_NKD.contiguous(), spans, scale
    )
    return output_NHD


def operators() -> tuple[Callable[..., tuple[Tensor, ...]], Callable[..., tuple[Tensor, ...]]]:
    """torch's forward and backward operators. Importing `torch.nn.attention.varlen` is what registers them."""
    import torch.nn.attention.varlen

    return torch.ops.torch_attn._varlen_attn, torch.ops.torch_attn._varlen_attn_backward


class _VarlenAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, spans: Spans, scale: float) -> Tensor:
        attend, _ = operators()
        own = (spans.segments_S, spans.segments_S, spans.longest_segment, spans.longest_segment)
        output_NHD, logsumexp_HN, ctx.random_state = attend(query_NHD, key_NKD, value_NKD, *own, True, scale)
        if spans.longest_read:
            start = spans.first_response
            prefix = attend(query_NHD[start:], key_NKD[:start], value_NKD[:start], *_prefix(spans), False, scale)
            own_HR, prompt_HR = logsumexp_HN[:, start:], prefix[1]
            share_RH1 = torch.sigmoid(prompt_HR - own_HR).T.unsqueeze(-1)
            merged_RHD = torch.lerp(output_NHD[start:].float(), prefix[0].float(), share_RH1).to(output_NHD.dtype)
            output_NHD = torch.cat((output_NHD[:start], merged_RHD))
            logsumexp_HN = torch.cat((logsumexp_HN[:, :start], torch.logaddexp(own_HR, prompt_HR)), dim=1)
        ctx.save_for_backward(query_NHD, key_NKD, value_NKD, output_NHD, logsumexp_HN)
        ctx.spans, ctx.scale = spans, scale
        return output_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHD: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query_NHD, key_NKD, value_NKD, output_NHD, logsumexp_HN = ctx.saved_tensors
        spans, scale, (_, differentiate) = ctx.spans, ctx.scale, operators()
        grad_NHD = grad_NHD.contiguous()
        own = (spans.segments_S, spans.segments_S, spans.longest_segment, spans.longest_segment)
        grad_query, grad_key, grad_value = differentiate(
            grad_NHD, query_NHD, key_NKD, value_NKD, output_NHD, logsumexp_HN, *own, True, ctx.random_state, scale
        )
        if spans.longest_read:
            start = spans.first_response
            part_query, part_key, part_value = differentiate(
                grad_NHD[start:],
                query_NHD[start:],
                key_NKD[:start],
                value_NKD[:start],
                output_NHD[start:],
                logsumexp_HN[:, start:].contiguous(),
                *_prefix(spans),
                False,
                ctx.random_state,
                scale,
            )
            grad_query[start:] += part_query
            grad_key[:start] += part_key
            grad_value[:start] += part_value
        return grad_query, grad_key, grad_value, None, None


def _prefix(spans: Spans) -> tuple[Tensor, Tensor, int, int]:
    return spans.reads_P, spans.prompts_P, spans.longest_read, spans.longest_prompt
