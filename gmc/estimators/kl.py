"""A penalty on the divergence from the initial policy, for rules whose papers have one."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need


class KLSettings(EstimatorSettings):
    """kl: the coefficient β of the penalty; 0 has none, and keeps no weights of the initial policy."""

    kl: float = Field(
        0.0, ge=0, description="coefficient of the KL penalty to the initial policy; above 0 costs a forward pass"
    )


def k3(batch: Batch) -> Tensor:
    """e^u − u − 1 per token, u = log π_0 − log π within ±20, with gradient 1 − e^u in log π (0 beyond ±20). Shape BT.

    Never negative, and of mean KL(π‖π_0) over tokens that π samples; over stale ones it is biased, for they come from μ.
    Needs `Need.REFERENCE_LOGP`. Source: the penalty of GRPO, arXiv 2402.03300, equation 4.
    """
    log_ratio_BT = batch.reference_logp_BT - batch.logp_BT
    # Before the exp: what stands at padding is arbitrary, and its overflow would come back as NaN.
    log_ratio_BT = torch.where(batch.mask_BT, log_ratio_BT, torch.zeros_like(log_ratio_BT))
    log_ratio_BT = log_ratio_BT.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    return torch.expm1(log_ratio_BT) - log_ratio_BT


class KLEstimator(Estimator):
    """Base of rules with the setting `kl`: with a coefficient β > 0 each token's objective loses β·k3.

    The pull to the initial policy stays where all rewards of a group are equal, and its weight e^u is unbounded.
    """

    Settings: ClassVar[type[EstimatorSettings]] = KLSettings

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        if self.settings.kl > 0:
            self.needs = self.needs | {Need.REFERENCE_LOGP}
            self.bounded = self.equal_rewards_vanish = False

    def penalized(self, objective_BT: Tensor, batch: Batch) -> Tensor:
        """The objective without the penalty, minus the penalty."""
        return objective_BT - self.settings.kl * k3(batch) if self.settings.kl > 0 else objective_BT

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """With a penalty: kl, the mean of k3 over response tokens, besides what the rule logs otherwise."""
        own = super().metrics(batch)
        if self.settings.kl == 0:
            return own
        return {**own, "kl": float(k3(batch).detach().sum() / batch.mask_BT.sum().clamp(min=1))}
