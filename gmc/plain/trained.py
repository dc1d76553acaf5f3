"""A plain network's forward pass under autograd, with the backward passes of what is no matrix product written out.

Autograd differentiates a norm, a rotation or a gate step by step, each step a pass over memory, and keeps what each one needs.
Together they took as long as the products of a small network. Written out, their backward passes take about a third of it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, linear, log_softmax, silu

from gmc.plain.decoder import Linear, Norm, PlainDecoder

AttendHeads = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query_NHD, key_NKD, value_NKD) to output_NHD. Queries and keys are turned already, and scaled."""


class TrainedDecoder(PlainDecoder):
    """A plain network with SiLU gates, through whose rearranged weights gradients reach the network's own.

    To be made anew for every pass: it holds the weights of the moment.
    """

    def hidden(self, ids_N: Tensor, positions_N: Tensor, attend: AttendHeads) -> Tensor:
        """Hidden states behind the last layer, before the final norm: hidden_NE."""
        rotations_N1C = self.rotations(int(positions_N.max()) + 1).index_select(0, positions_N)
        table = self._structure.embedding
        x_NE = embedding(ids_N, table.weight, table.padding_idx)
        for layer in self._layers:
            normed_NE, x_NE = _Normed.apply(x_NE, layer.attention_norm)  # type: ignore[no-untyped-call]
            mixed_NO = layer.query_key_value(normed_NE)
            turned = (layer.head_weights_ND, layer.head_norm, rotations_N1C, self.heads, self.key_heads)
            heads: tuple[Tensor, Tensor, Tensor] = _Turned.apply(mixed_NO, *turned)  # type: ignore[no-untyped-call]
            x_NE = layer.output.added_to(x_NE, attend(*heads).flatten(1))
            normed_NE, x_NE = _Normed.apply(x_NE, layer.mlp_norm)  # type: ignore[no-untyped-call]
            x_NE = layer.down.added_to(x_NE, _Gated.apply(layer.gate_up(normed_NE)))  # type: ignore[no-untyped-call]
        return x_NE

    def head(self, hidden_RE: Tensor) -> tuple[Tensor, Linear]:
        """What the head's product takes, and the head."""
        normed_RE, _ = _Normed.apply(hidden_RE, self._norm)  # type: ignore[no-untyped-call]
        return normed_RE, self._head


def kept_logp(hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None, targets_R: Tensor, temperature: float) -> Tensor:
    """log π(target) of softmax((hidden · weightᵀ + bias) / temperature), differentiable: logp_R. Keeps R · V log-probs."""
    logits_RV = linear(hidden_RE, weight_VE, bias_V)
    logp_R: Tensor = _TokenLogp.apply(logits_RV, targets_R, temperature)  # type: ignore[no-untyped-call]
    return logp_R


class _Normed(torch.autograd.Function):
    """A norm of x, and x itself, so that the gradient of a residual branch is added in the pass that makes the other."""

    @staticmethod
    def forward(ctx: Any, x_NE: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        factor_N1 = norm.factor(x_NE)
        normed_NE = x_NE * factor_N1
        ctx.save_for_backward(normed_NE, factor_N1)
        return normed_NE, x_NE.view_as(x_NE)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NE: Tensor, residual_NE: Tensor) -> tuple[Tensor, None]:
        normed_NE, factor_N1 = ctx.saved_tensors
        along_N1 = (grad_NE * normed_NE).sum(-1, keepdim=True)
        across_NE = torch.addcmul(grad_NE, normed_NE, along_N1, value=-1 / normed_NE.shape[1])
        return torch.addcmul(residual_NE, across_NE, factor_N1), None


class _Turned(torch.autograd.Function):
    """Mixed projections to queries, keys and values of single heads: norms where there are any, then rotation."""

    @staticmethod
    def forward(
        ctx: Any,
        mixed_NO: Tensor,
        weights_AD: Tensor | None,
        norm: Norm | None,
        rotations_N1C: Tensor,
        heads: int,
        key_heads: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        head_dim = 2 * rotations_N1C.shape[2]
        mixed_NAD = mixed_NO.view(len(mixed_NO), -1, head_dim)
        turned_NAD, ctx.heads, ctx.shape = mixed_NAD[:, : heads + key_heads], heads, mixed_NO.shape
        if norm is None or weights_AD is None:
            ctx.save_for_backward(rotations_N1C)
        else:
            factor_NA1 = norm.factor(turned_NAD)
            normed_NAD = turned_NAD * factor_NA1
            ctx.save_for_backward(rotations_N1C, weights_AD, normed_NAD, factor_NA1)
            turned_NAD = normed_NAD * weights_AD
        pairs_NAC = _complex(turned_NAD)
        parts = (pairs_NAC[:, :heads], pairs_NAC[:, heads:])
        query, key = (torch.view_as_real(part * rotations_N1C).flatten(2) for part in parts)
        return query, key, mixed_NAD[:, heads + key_heads :].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor) -> tuple[Tensor | None, ...]:
        rotations_N1C, *head_norm = ctx.saved_tensors
        back_N1C, heads = rotations_N1C.conj().resolve_conj(), ctx.heads
        grad_NO = query_NHD.new_empty(ctx.shape)
        grad_NAD = grad_NO.view(len(grad_NO), -1, query_NHD.shape[2])
        turned_NAD = grad_NAD[:, : heads + key_NKD.shape[1]]
        grad_NAD[:, turned_NAD.shape[1] :] = value_NKD
        pairs_NAC = _complex(turned_NAD)
        for part, grad in ((pairs_NAC[:, :heads], query_NHD), (pairs_NAC[:, heads:], key_NKD)):
            torch.mul(_complex(grad.contiguous()), back_N1C, out=part)
        if not head_norm:
            return grad_NO, None, None, None, None, None
        weights_AD, normed_NAD, factor_NA1 = head_norm
        inner_NAD = turned_NAD * normed_NAD
        grad_weights_AD = inner_NAD.sum(0)
        along_NA1 = inner_NAD.mul_(weights_AD).sum(-1, keepdim=True)
        turned_NAD.mul_(weights_AD).addcmul_(normed_NAD, along_NA1, value=-1 / normed_NAD.shape[2]).mul_(factor_NA1)
        return grad_NO, grad_weights_AD, None, None, None, None


class _Gated(torch.autograd.Function):
    """silu(gate) · up, of gate and up side by side."""

    @staticmethod
    def forward(ctx: Any, both_NO: Tensor) -> Tensor:
        ctx.save_for_backward(both_NO)
        gate_NM, up_NM = both_NO.chunk(2, dim=1)
        return silu(gate_NM).mul_(up_NM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NM: Tensor) -> Tensor:
        (both_NO,) = ctx.saved_tensors
        gate_NM, up_NM = both_NO.chunk(2, dim=1)
        grad_NO = torch.empty_like(both_NO)
        grad_gate_NM, grad_up_NM = grad_NO.chunk(2, dim=1)
        torch.mul(silu(gate_NM), grad_NM, out=grad_up_NM)
        torch.ops.aten.silu_backward.grad_input(grad_NM * up_NM, gate_NM, grad_input=grad_gate_NM)
        return grad_NO


class _TokenLogp(torch.autograd.Function):
    """log-softmax of logits / temperature at the targets."""

    @staticmethod
    def forward(ctx: Any, logits_RV: Tensor, targets_R: Tensor, temperature: float) -> Tensor:
        logp_RV = log_softmax(logits_RV if temperature == 1 else logits_RV / temperature, dim=-1)
        ctx.save_for_backward(logp_RV, targets_R)
        ctx.temperature = temperature
        return logp_RV.gather(1, targets_R.unsqueeze(1)).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_R: Tensor) -> tuple[Tensor, None, None]:
        logp_RV, targets_R = ctx.saved_tensors
        grad_R1 = (grad_R / ctx.temperature).unsqueeze(1)
        return logp_RV.exp().mul_(-grad_R1).scatter_add_(1, targets_R.unsqueeze(1), grad_R1), None, None


def _complex(pairs: Tensor) -> Tensor:
    """[…, D] as D / 2 complex numbers."""
    return torch.view_as_complex(pairs.view(*pairs.shape[:-1], -1, 2))
