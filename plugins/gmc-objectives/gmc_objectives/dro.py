"""DRO, direct reward optimization: REINFORCE without a ratio, and a squared token log-ratio that pulls it back."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class DRO(Estimator):
    """A·log π − (β/2)·(log r)² per token, so the weight is A − β·log r. The pull stays when all rewards are equal."""

    name = "dro"
    summary = "DRO: A·log π minus a squared token log-ratio"
    formula = "κ_it = A_i − β·log r_it"
    reference = "Richemond et al., arXiv 2405.19107; verl, policy loss dro"
    evidence = "Exact in verl. The group advantage takes the place of the paper's learned value."
    scope = "token"
    bounded = False
    equal_rewards_vanish = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """beta: strength of the pull."""

        beta: float = Field(0.1, gt=0, description="weight of the squared log-ratio")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """(A − β·sg(log r))·log π; log r within ±20, beyond which the pull is constant rather than gone."""
        beta: float = self.settings.beta
        pull_BT = beta * batch.log_ratio_BT.detach().clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        return (batch.advantages_B1 - pull_BT) * batch.logp_BT
