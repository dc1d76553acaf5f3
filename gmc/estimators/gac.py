"""Gradient Alignment Control: act on the cosine of consecutive gradients, over any base rule."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from gmc.estimators.base import EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.composition import BaseRule, ComposedEstimator
from gmc.estimators.gradient import SKIP, Gradient, Skip

_COUNTS = ("updates", "skips", "consecutive_skips")


class GAC(ComposedEstimator):
    """Keeps, projects or skips an update by |cos(g_t, g_{t−1})|, the gradients raw, whole and before clipping.

    At or below c_low the gradient is used as it is. Between the two its part along g_{t−1} is removed ("full") or shrunk until
    the cosine is c_low ("shrink"). At or above c_high the update is skipped: no optimizer step, no moment moves, but its index
    counts. g_t is stored raw in every case. A zero gradient has no direction: it is kept, and the last other one stays stored.
    """

    name = "gac"
    summary = "Gradient alignment control over a base rule: keep, project or skip"
    formula = "|c| ≤ c_low: g; c_low < |c| < c_high: g⊥ + λ·g∥ (λ = 0, or such that |c| = c_low); |c| ≥ c_high: skip"
    reference = "Xu, Su, Tian, Diao, Qian, Wu, arXiv 2603.01501"
    evidence = (
        "Statistic and thresholds: stated by the paper. RECONSTRUCTION: the absolute value, the projection's formula, that the "
        "raw gradient is stored, and that a skip still stores it."
    )

    class Settings(EstimatorSettings):
        """base: the rule wrapped. c_low, c_high: thresholds on |cosine|. projection: what happens between them."""

        base: BaseRule = Field(BaseRule(), description="the rule that makes the gradient")
        c_low: float = Field(0.05, ge=0, lt=1, description="up to this |cosine| the gradient is used as it is")
        c_high: float = Field(0.3, gt=0, le=1, description="from this |cosine| on the update is skipped")
        projection: Literal["full", "shrink"] = Field("full", description="remove the parallel part, or shrink it to c_low")

        @model_validator(mode="after")
        def _ordered(self) -> "GAC.Settings":
            if self.c_low >= self.c_high:
                raise ValueError(f"c_low = {self.c_low:g} must be below c_high = {self.c_high:g}")
            return self

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._previous: list[Tensor] | None = None
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._cosine = 0.0

    def gradient(self, gradient: Gradient) -> Gradient | Skip:
        """The base rule's gradient stage, then keep, project or skip."""
        own = self.base.gradient(gradient)
        if isinstance(own, Skip):
            return own
        previous, norm = None if self._previous is None else own.of(self._previous), own.norm()
        if norm > 0:
            self._previous = own.clone().tensors
        self._counts["updates"] += 1
        length = 0.0 if previous is None else previous.norm()
        if previous is None or norm * length == 0:
            self._cosine, self._counts["consecutive_skips"] = 0.0, 0
            return own
        dot = own.dot(previous)
        self._cosine = dot / (norm * length)
        if abs(self._cosine) >= self.settings.c_high:
            self._counts["skips"] += 1
            self._counts["consecutive_skips"] += 1
            return SKIP
        self._counts["consecutive_skips"] = 0
        if abs(self._cosine) <= self.settings.c_low:
            return own
        return own.add(previous, -(1 - self._kept_share()) * dot / length**2)

    def _kept_share(self) -> float:
        """λ: the share of the parallel part that stays."""
        if self.settings.projection == "full":
            return 0.0
        c_low, cosine = self.settings.c_low, abs(self._cosine)
        return float(c_low / math.sqrt(1 - c_low**2) * math.sqrt(1 - cosine**2) / cosine)

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """Cosine, share of updates skipped so far, skips in a row; the base rule's as base_NAME."""
        rate = self._counts["skips"] / max(1, self._counts["updates"])
        own = {"cosine": self._cosine, "skip_rate": rate, "consecutive_skips": float(self._counts["consecutive_skips"])}
        return {**own, **super().metrics(batch)}

    def state_dict(self) -> dict[str, Tensor]:
        """The previous gradient, the counts, and the base rule's state."""
        state = {f"previous.{index:05d}": tensor for index, tensor in enumerate(self._previous or [])}
        return {**state, **{key: torch.tensor(self._counts[key]) for key in _COUNTS}, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave. Raises `ValueError` on other keys."""
        previous = [state[key].clone() for key in sorted(state) if key.startswith("previous.")]
        rest = {key: value for key, value in state.items() if not key.startswith("previous.") and key not in _COUNTS}
        super().load_state_dict(rest)
        self._previous = previous or None
        self._counts = {key: int(state[key]) for key in _COUNTS}
