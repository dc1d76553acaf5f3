"""What trajectory rules subtract from a reward: the mean of the other rewards, plain or weighted by trajectory ratios."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import weighted_leave_one_out
from gmc.estimators.base import Estimator, EstimatorSettings, leave_one_out
from gmc.estimators.batch import Batch


class BaselineSettings(EstimatorSettings):
    """baseline: how the rewards of the other responses of the group are averaged."""

    baseline: Literal["loo", "weighted"] = Field(
        "loo", description="subtracted from a reward: the mean of the group's others, plain or weighted by their ratios ρ"
    )


class TrajectoryEstimator(Estimator):
    """Base of rules whose advantage is leave-one-out, with the setting `baseline`.

    "weighted" answers stale advantages without a critic: A_i = R_i − Σ_{j≠i} ρ_j·R_j / Σ_{j≠i} ρ_j estimates what the current
    policy would get on the prompt, where the plain mean says what the older one got. The raw ratios weigh, whatever the rule's
    own cap is. Both leave plain importance weighting unbiased, for neither depends on response i.
    """

    Settings: ClassVar[type[EstimatorSettings]] = BaselineSettings

    def advantages(self, batch: Batch) -> Tensor:
        """Advantages_PG by the chosen baseline."""
        if self.settings.baseline == "weighted":
            return weighted_leave_one_out(batch.rewards_PG, batch.log_rho_PG.detach())
        return leave_one_out(batch.rewards_PG)
