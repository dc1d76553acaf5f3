"""What every update logs, whatever the rule: rewards, delays, ratios, effective sample size, lengths.

Ratios here always use the log-probs of the run's chosen kind; all statistics are over the whole update batch and stay in
the log domain until the last step, so they are finite for any ratio.
"""

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from gmc.estimators.sample_size import log_ess_share
from gmc.gradients.assemble import lags, token_lags
from gmc.store.shards.groups import Groups, sampled_length
from gmc.store.shards.rollout import Rollout

REPORT_EPSILON = 0.28
"""ε of the reported removed mass and capped share when a rule has none (the default of arXiv 2610.01896)."""


def rollout_metrics(groups: Groups, update: int | None, parts: Sequence[str] = ()) -> dict[str, float]:
    """Rewards, delays and lengths of the rows an update trains on.

    update: None where the delays are not known, which leaves them out. parts: names of the reward's parts, if it has several.
    """
    rows = [row for group in groups for row in group]
    lengths = [float(sampled_length(row)) for row in rows]
    statuses = [row.status for row in rows]
    rewards = [row.reward for row in rows]
    return {
        "reward/mean": mean(rewards),
        "reward/std": statistics.pstdev(rewards),
        **_part_means(rows, parts),
        "reward/unparseable_share": statuses.count("unparseable") / len(rows),
        "reward/timeouts": float(statuses.count("timeout")),
        "reward/crashes": float(statuses.count("crash")),
        "reward/errors": float(statuses.count("error")),
        "reward/equal_groups_share": mean([float(len({row.reward for row in group}) == 1) for group in groups]),
        "response/length_mean": mean(lengths),
        "response/length_max": max(lengths),
        "response/truncated_share": mean([float(row.finish_reason == "length") for row in rows]),
        **_turn_metrics(rows),
        **({} if update is None else _delay_metrics(groups, update)),
    }


def _delay_metrics(groups: Groups, update: int) -> dict[str, float]:
    """How old the rows are that an update trains on, by their first tokens; and by token where versions changed within."""
    rows = [row for group in groups for row in group]
    delays = [float(delay) for delay in lags(groups, update)]
    return {
        "delay/mean": mean(delays),
        "delay/max": max(delays),
        "delay/fourth_moment": mean([delay**4 for delay in delays]),
        "delay/length_correlation": correlation([float(sampled_length(row)) for row in rows], delays),
        "delay/version_0_share": mean([float(row.policy_version == 0) for row in rows]),
        **_version_metrics(rows, update),
    }


def _turn_metrics(rows: Sequence[Rollout]) -> dict[str, float]:
    """How often the model spoke and how much was said to it in between; nothing where no response has a mask."""
    if all(row.response_mask is None for row in rows):
        return {}
    masks = [row.response_mask or [True] for row in rows]
    turns = [sum(own and not before for before, own in zip([False, *mask], mask, strict=False)) for mask in masks]
    return {
        "response/turns_mean": mean([float(count) for count in turns]),
        "response/environment_tokens_mean": mean([float(mask.count(False)) for mask in masks]),
    }


def _version_metrics(rows: Sequence[Rollout], update: int) -> dict[str, float]:
    """How mixed responses are: nothing where each was sampled by one version. Δ_intra and Δ_inter of arXiv 2607.22186."""
    if all(row.token_versions is None for row in rows):
        return {}
    lags_BT = [own for row in rows if (own := token_lags(row, update))]
    tokens = [float(lag) for own in lags_BT for lag in own]
    return {
        "delay/mixed_share": mean([float(len(set(own)) > 1) for own in lags_BT]),
        "delay/versions_mean": mean([float(len(set(own))) for own in lags_BT]),
        "delay/token_mean": mean(tokens),
        "delay/within_response_mean": mean([float(own[0] - own[-1]) for own in lags_BT]),
        "delay/after_response_mean": mean([float(own[-1]) for own in lags_BT]),
    }


def _part_means(rows: Sequence[Rollout], parts: Sequence[str]) -> dict[str, float]:
    """Mean of each part over the responses that it applies to; none where it applies to none, or the rows bring no parts."""
    if len(parts) < 2 or any(row.reward_parts is None or len(row.reward_parts) != len(parts) for row in rows):
        return {}
    found = {}
    for index, name in enumerate(parts):
        values = [row.reward_parts[index] for row in rows if row.reward_parts and not math.isnan(row.reward_parts[index])]
        if values:
            found[f"reward/parts/{name}"] = mean(values)
    return found


def ratio_metrics(log_ratio_BT: Tensor, mask_BT: Tensor, group_size: int, epsilon: float) -> dict[str, float]:
    """Importance ratios of an update batch, raw (before any cap or clip).

    log_ratio_BT: log π − log μ per token, zero at padding. Group quantities use ρ̄, the mean ratio of a group; ESS is over
    sequences. removed_mass is the batch mean of (ρ̄ − 1 − ε)₊.
    """
    log_ratio_BT = log_ratio_BT.detach().double()
    log_rho_B = log_ratio_BT.sum(-1)
    log_mean_P = torch.logsumexp(log_rho_B.view(-1, group_size), dim=1) - math.log(group_size)
    lengths_B = mask_BT.sum(-1).double()
    tokens = log_ratio_BT[mask_BT]
    clamped = tokens.clamp(-50, 50)
    removed_P = (log_mean_P.clamp(max=700).exp() - 1 - epsilon).clamp(min=0)
    quantiles = torch.quantile(log_mean_P, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64, device=log_mean_P.device))
    k3 = torch.expm1(clamped) - clamped
    return {
        "ratio/log_group_mean_q05": quantiles[0].item(),
        "ratio/log_group_mean_q50": quantiles[1].item(),
        "ratio/log_group_mean_q95": quantiles[2].item(),
        "ratio/log_rho_mean": log_rho_B.mean().item(),
        "ratio/log_rho_std": log_rho_B.std(unbiased=False).item(),
        "ratio/log_rho_max": log_rho_B.max().item(),
        "ratio/log_per_token_mean": (log_rho_B / lengths_B.clamp(min=1)).mean().item(),
        "ratio/ess_share": math.exp(log_ess_share(log_rho_B)),
        "ratio/removed_mass": removed_P.mean().item(),
        "ratio/groups_capped_share": (log_mean_P > math.log1p(epsilon)).double().mean().item(),
        "ratio/kept_share": (log_rho_B <= math.log1p(epsilon)).double().mean().item(),
        "ratio/k3": k3.mean().item() if tokens.numel() else 0.0,
        "ratio/tokens_above_1.2_share": (tokens > math.log(1.2)).double().mean().item() if tokens.numel() else 0.0,
        "ratio/tokens_below_0.8_share": (tokens < math.log(0.8)).double().mean().item() if tokens.numel() else 0.0,
        "ratio/length_correlation": correlation(lengths_B.tolist(), log_rho_B.tolist()),
    }


def weight_metrics(gradient_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """The weights that the rule really gave: ∂objective/∂logp over the advantage, averaged over a response's tokens.

    gradient_BT: gradient of the un-normalized objective. Responses of zero advantage have no defined weight and are left out.
    """
    lengths_B = mask_BT.sum(-1)
    counted_B = (advantages_B != 0) & (lengths_B > 0)
    summed_B = torch.where(mask_BT, gradient_BT, torch.zeros_like(gradient_BT)).sum(-1)
    weights = (summed_B / lengths_B.clamp(min=1) / advantages_B)[counted_B].double()
    if not len(weights):
        return {"weight/mean": 0.0, "weight/max": 0.0, "weight/zero_share": 0.0, "weight/length_correlation": 0.0}
    return {
        "weight/mean": weights.mean().item(),
        "weight/max": weights.max().item(),
        "weight/zero_share": (weights == 0).double().mean().item(),
        "weight/length_correlation": correlation(lengths_B[counted_B].tolist(), weights.tolist()),
    }


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; raises `ZeroDivisionError` on nothing."""
    return math.fsum(values) / len(values)


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson correlation; 0 when either side does not vary."""
    dx, dy = _deviations(xs), _deviations(ys)
    if not dx or not dy:
        return 0.0
    product = math.fsum(x * y for x, y in zip(dx, dy, strict=True))
    return product / math.sqrt(math.fsum(x * x for x in dx) * math.fsum(y * y for y in dy))


def _deviations(values: Sequence[float]) -> list[float]:
    """From their mean, in units of the largest one, so that no square underflows; empty where nothing varies or is finite."""
    center = mean(values)
    largest = max((abs(value - center) for value in values), default=0.0)
    return [(value - center) / largest for value in values] if 0 < largest < math.inf else []
