"""A rule that wraps another: how the other is named, and what it hands on."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.registry import build_estimator


class BaseRule(BaseModel):
    """a rule's name, or its settings with `name`"""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "grpo"

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class ComposedEstimator(Estimator):
    """Base of rules with a setting `base`: stages 1, 2 and 4, and every declaration about weights, are the base rule's.

    Raises `EstimatorError` when the base is unknown or one of its settings (`estimator.base.*`) is refused.
    """

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        chosen: BaseRule = self.settings.base
        self.base = build_estimator(chosen.name, chosen.model_extra, path="estimator.base")
        self.scope, self.needs, self.bounded = self.base.scope, self.base.needs, self.base.bounded
        self.on_policy_weight, self.equal_rewards_vanish = self.base.on_policy_weight, self.base.equal_rewards_vanish
        self.normalizer, self.anchor_lag = self.base.normalizer, self.base.anchor_lag

    def advantages(self, batch: Batch) -> Tensor:
        """The base rule's."""
        return self.base.advantages(batch)

    def objective(self, batch: Batch) -> Tensor:
        """The base rule's."""
        return self.base.objective(batch)

    def learning_rate_scale(self, batch: Batch) -> float:
        """The base rule's."""
        return self.base.learning_rate_scale(batch)

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """The base rule's, each under base_NAME."""
        return {f"base_{key}": value for key, value in self.base.metrics(batch).items()}

    def state_dict(self) -> dict[str, Tensor]:
        """The base rule's, each under base.NAME."""
        return {f"base.{key}": value for key, value in self.base.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Hand the base rule its part; raises `ValueError` on keys that are nobody's."""
        foreign = sorted(key for key in state if not key.startswith("base."))
        if foreign:
            raise ValueError(f"{self.name} does not know the state {foreign}")
        self.base.load_state_dict({key.removeprefix("base."): value for key, value in state.items()})
