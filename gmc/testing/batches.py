"""Update batches without a model: from given log-ratios, or random."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gmc.estimators.batch import Batch, Need

EVERY_NEED = frozenset(Need)


def make_batch(
    log_ratio_BT: Tensor,
    rewards_PG: Tensor,
    *,
    lengths_B: Sequence[int] | None = None,
    brought: dict[Need, Tensor] | None = None,
    update: int = 5,
) -> Batch:
    """A batch with these token log-ratios log π − log μ and rewards; log π ≤ 0 and log μ ≤ 0.

    lengths_B: response lengths, default all T. brought: replaces or adds to the default, which is behavior log-probs, lags of
    one update, entropies of one nat, an engine equal to the trainer, an anchor and a reference equal to the current policy,
    score norms equal to the length, and 100 planned updates.
    """
    sequences, tokens = log_ratio_BT.shape
    lengths = torch.tensor(list(lengths_B) if lengths_B is not None else [tokens] * sequences)
    mask_BT = torch.arange(tokens)[None, :] < lengths[:, None]
    behavior_BT = -0.5 - log_ratio_BT.clamp(min=0)
    logp_BT = (behavior_BT + log_ratio_BT).detach()
    ones_BT = torch.ones_like(logp_BT)
    defaults = {
        Need.BEHAVIOR_LOGP: logp_BT - log_ratio_BT,
        Need.LAGS: ones_BT,
        Need.BEHAVIOR_ENTROPY: ones_BT,
        Need.ENGINE_LOGP: logp_BT - log_ratio_BT,
        Need.ANCHOR_LOGP: logp_BT.clone(),
        Need.REFERENCE_LOGP: logp_BT.clone(),
        Need.SCORE_NORMS: lengths.to(logp_BT.dtype).log(),
        Need.PLANNED_UPDATES: torch.tensor(100),
    }
    return Batch(rewards_PG, logp_BT.requires_grad_(), mask_BT, tokens, update, {**defaults, **(brought or {})})


def random_batch(
    *,
    seed: int = 0,
    groups: int = 3,
    group_size: int = 4,
    max_tokens: int = 7,
    spread: float = 1.0,
    on_policy: bool = False,
    needs: Iterable[Need] = EVERY_NEED,
    dtype: torch.dtype = torch.float64,
    update: int = 5,
) -> Batch:
    """A random batch of 0/1 rewards and uneven lengths, the last response of the first group empty.

    spread: standard deviation of a token's log-ratio. on_policy: all ratios 1, all lags 0, engine equal to the trainer, anchor
    and reference equal to the current policy.
    needs: what the batch brings; anything else raises `UndeclaredNeedError` when read.
    """
    draw = torch.Generator().manual_seed(seed)
    sequences = groups * group_size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    lengths = torch.randint(1, max_tokens + 1, (sequences,), generator=draw)
    lengths[0], lengths[group_size - 1] = max_tokens, 0
    rewards_PG = torch.randint(0, 2, (groups, group_size), generator=draw).to(dtype)
    log_ratio_BT = (
        torch.zeros(sequences, max_tokens, dtype=torch.float64) if on_policy else spread * normal(sequences, max_tokens)
    )
    behavior_BT = -normal(sequences, max_tokens).abs() - log_ratio_BT.clamp(min=0) - 0.01
    logp_BT = behavior_BT + log_ratio_BT
    lag_B1 = torch.randint(1, 9, (sequences, 1), generator=draw).double()
    noise_BT = 0.05 * normal(sequences, max_tokens)
    everything = {
        Need.BEHAVIOR_LOGP: behavior_BT,
        Need.LAGS: torch.zeros_like(logp_BT) if on_policy else lag_B1.expand_as(logp_BT),
        Need.BEHAVIOR_ENTROPY: normal(sequences, max_tokens).abs(),
        Need.ANCHOR_LOGP: logp_BT if on_policy else behavior_BT + 0.5 * log_ratio_BT + noise_BT,
        Need.SCORE_NORMS: lengths.double().log() + normal(sequences),
        Need.PLANNED_UPDATES: torch.tensor(100),
        Need.ENGINE_LOGP: behavior_BT if on_policy else behavior_BT + 0.2 * normal(sequences, max_tokens),
        Need.REFERENCE_LOGP: logp_BT if on_policy else behavior_BT + 0.5 * normal(sequences, max_tokens),
    }
    brought = {
        need: value.to(dtype) if value.is_floating_point() else value for need, value in everything.items() if need in needs
    }
    mask_BT = torch.arange(max_tokens)[None, :] < lengths[:, None]
    return Batch(rewards_PG, logp_BT.to(dtype).clone().requires_grad_(), mask_BT, max_tokens, update, brought)


def with_logp(batch: Batch, logp_BT: Tensor) -> Batch:
    """The same batch under other current log-probs, as a fresh leaf."""
    return replace(batch, logp_BT=logp_BT.detach().clone().requires_grad_())


def take_rows(batch: Batch, rows: Tensor, groups: int) -> Batch:
    """The batch of these sequences, in this order, read as `groups` groups."""
    brought = {need: value if value.ndim == 0 else value[rows] for need, value in batch.brought.items()}
    advantages = None if batch.advantages is None else batch.advantages.reshape(-1)[rows].reshape(groups, -1)
    return Batch(
        batch.rewards_B[rows].reshape(groups, -1),
        batch.logp_BT.detach()[rows].clone().requires_grad_(),
        batch.mask_BT[rows],
        batch.max_response_tokens,
        batch.update,
        brought,
        advantages,
    )


def take_groups(batch: Batch, groups: Sequence[int]) -> Batch:
    """The batch of these groups, in this order."""
    size = batch.group_size
    rows = torch.cat([torch.arange(group * size, (group + 1) * size) for group in groups])
    return take_rows(batch, rows, len(groups))


def pad(batch: Batch, columns: int, garbage: float = -37.0) -> Batch:
    """The same responses in a wider array whose new columns hold `garbage`, which no rule may look at."""

    def widen(value: Tensor, fill: float) -> Tensor:
        return torch.cat([value.detach(), torch.full((value.shape[0], columns), fill).to(value)], dim=1)

    brought = {need: widen(value, garbage) if value.ndim == 2 else value for need, value in batch.brought.items()}
    padded = replace(batch, mask_BT=widen(batch.mask_BT, False), brought=brought)
    return with_logp(padded, widen(batch.logp_BT, garbage - 1.0))


def mix(batch: Batch, other: Batch, take_other_BT: Tensor) -> Batch:
    """`batch` with the values of `other` at the marked tokens; rewards and `[B]` values at rows marked throughout."""
    rows_B = take_other_BT.all(-1)
    brought = {}
    for need, value in batch.brought.items():
        marked = {0: None, 1: rows_B, 2: take_other_BT}[value.ndim]
        brought[need] = value if marked is None else torch.where(marked, other.brought[need], value)
    rewards_PG = torch.where(rows_B.reshape(batch.rewards_PG.shape), other.rewards_PG, batch.rewards_PG)
    mixed = replace(batch, brought=brought, rewards_PG=rewards_PG)
    return with_logp(mixed, torch.where(take_other_BT, other.logp_BT.detach(), batch.logp_BT.detach()))
