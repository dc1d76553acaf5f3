"""The optimizer and its learning rate, a pure function of the update index and the planned horizon."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter

from gmc.config.settings import OptimizerSettings
from gmc.errors import UsageError


def make_optimizer(parameters: Iterable[Parameter], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """AdamW over float32 master weights: torch's fused one, or bitsandbytes' with 8-bit moments.

    Raises `UsageError` when bitsandbytes cannot be imported.
    """
    options: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": (settings.beta1, settings.beta2),
        "eps": settings.epsilon,
        "weight_decay": settings.weight_decay,
    }
    if settings.name == "adamw":
        return torch.optim.AdamW(parameters, fused=True, **options)
    try:
        from bitsandbytes.optim import AdamW8bit  # type: ignore[attr-defined]
    except ImportError as error:
        raise UsageError(f"optimizer.name = adamw8bit: bitsandbytes cannot be imported ({error}); use adamw") from error
    optimizer: torch.optim.Optimizer = AdamW8bit(parameters, **options)  # type: ignore[no-untyped-call]
    return optimizer


def learning_rate(update: int, planned_updates: int, settings: OptimizerSettings) -> float:
    """The scheduled rate of update index `update` (from 0) when `planned_updates` are planned.

    Linear warm-up reaches the peak at update index `warmup_updates`; then constant, cosine or linear decay to
    `final_fraction` of the peak, which the last planned update would reach one index later.
    """
    peak = settings.learning_rate
    assert peak is not None
    if update < settings.warmup_updates:
        return peak * (update + 1) / (settings.warmup_updates + 1)
    if settings.schedule == "constant":
        return peak
    span = max(1, planned_updates - settings.warmup_updates)
    progress = min(1.0, (update - settings.warmup_updates) / span)
    shape = 0.5 * (1 + math.cos(math.pi * progress)) if settings.schedule == "cosine" else 1 - progress
    return peak * (settings.final_fraction + (1 - settings.final_fraction) * shape)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter group this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
