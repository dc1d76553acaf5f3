"""The threshold ε of capping rules: a constant, or a schedule that grows with the delays seen."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import EstimatorSettings
from gmc.estimators.baseline import BaselineSettings, TrajectoryEstimator
from gmc.estimators.batch import Batch, Need

_STATE = ("delay_fourth_moment_sum", "delay_count", "last_update")


class EpsilonSettings(BaselineSettings):
    """epsilon: the cap is 1 + ε, a number or "auto". epsilon_k, epsilon_limit: used by "auto" only.

    The default k makes "auto" equal the paper's constant 0.28 where the paper measured most: delay 128, 800 updates. ε is at
    least 0: a rule that drops what lies above the cap would below it drop every on-policy response, and learn nothing.
    """

    epsilon: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        0.28, description="the cap is 1 + epsilon; auto: from delays"
    )
    epsilon_k: float = Field(0.0733, gt=0, description="k of epsilon=auto; 0.0733 gives 0.28 at delay 128 and 800 updates")
    epsilon_limit: bool = Field(False, description="epsilon=auto passes through min{1, ·}, as in the paper's remark")


class ScalingEpsilonSettings(EpsilonSettings):
    """For rules that scale down to the cap and drop nothing: ε may be negative, a cap below 1 that binds on-policy too."""

    epsilon: Annotated[float, Field(gt=-1)] | Literal["auto"] = Field(
        0.28, description="the cap is 1 + epsilon; auto: from delays"
    )


class CappingEstimator(TrajectoryEstimator):
    """Base of rules with a cap 1 + ε; resolves `epsilon=auto` to ε = k·τ̄₄^(1/7)·N^(−3/14).

    τ̄₄ is the running mean of the fourth power of every delay seen so far, at least 1; N the planned number of updates.
    Source: the optimal threshold of arXiv 2610.01896 is Θ(τ̄₄^(1/7)·N^(−3/14)); the constant k is ours. The order is proved for
    τ̄₄ ≤ N^(3/2) only, a constant delay of 12 at 800 updates, and nobody tuned k: "auto" is no tuned threshold.
    """

    Settings: ClassVar[type[EstimatorSettings]] = EpsilonSettings

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._sum, self._count, self._last_update = 0.0, 0, -1
        self._raw = self._used = math.nan
        if self.settings.epsilon == "auto":
            self.needs = type(self).needs | {Need.LAGS, Need.PLANNED_UPDATES}
            self.scope = "batch"
        else:
            self.on_policy_weight = min(1.0, 1.0 + self.settings.epsilon)

    def epsilon(self, batch: Batch) -> float:
        """ε for this update. With "auto", a batch's delays are counted once, however often this is called for it."""
        if self.settings.epsilon != "auto":
            return float(self.settings.epsilon)
        if batch.update > self._last_update:
            self._count_delays(batch)
            self._last_update = batch.update
        fourth_moment = max(1.0, self._sum / max(1, self._count))
        self._raw = self.settings.epsilon_k * fourth_moment ** (1 / 7) * batch.planned_updates ** (-3 / 14)
        self._used = min(1.0, self._raw) if self.settings.epsilon_limit else self._raw
        return self._used

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """With "auto": the schedule's value before and after the limit."""
        return {} if self.settings.epsilon != "auto" else {"epsilon_raw": self._raw, "epsilon": self._used}

    def state_dict(self) -> dict[str, Tensor]:
        """With "auto": what the running mean holds, and the last update counted."""
        if self.settings.epsilon != "auto":
            return {}
        values = (self._sum, self._count, self._last_update)
        return {key: torch.tensor(value, dtype=torch.float64) for key, value in zip(_STATE, values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the running mean. Raises `ValueError` on other keys."""
        if self.settings.epsilon != "auto":
            return super().load_state_dict(state)
        if sorted(state) != sorted(_STATE):
            raise ValueError(f"{self.name} with epsilon=auto keeps {sorted(_STATE)} but was given {sorted(state)}")
        self._sum = float(state[_STATE[0]])
        self._count, self._last_update = int(state[_STATE[1]]), int(state[_STATE[2]])
        return None

    def _count_delays(self, batch: Batch) -> None:
        """One delay a response: that of its oldest token. An empty response has none."""
        lag_B = torch.where(batch.mask_BT, batch.lag_BT, torch.zeros_like(batch.lag_BT)).amax(-1)[batch.lengths_B > 0]
        self._sum += float((lag_B.double() ** 4).sum())
        self._count += lag_B.numel()
