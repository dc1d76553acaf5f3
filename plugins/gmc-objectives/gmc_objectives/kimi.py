"""Kimi k1.5's objective: REINFORCE without a ratio, and a squared log-ratio of the response that pulls it back."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class Kimi(Estimator):
    """A·log π(y) − (τ/2)·(log ρ)² per response, so the weight is A − τ·log ρ. The pull stays when all rewards are equal."""

    name = "kimi"
    summary = "Kimi k1.5: A·log π minus a squared trajectory log-ratio"
    formula = "κ = (R − R̄) − τ·log ρ"
    reference = "Kimi team, arXiv 2501.12599, equation 3"
    evidence = "Third-party: ROLL quotes the equation so, but itself squares token log-ratios, which is dro with beta = tau."
    scope = "sequence"
    bounded = False
    equal_rewards_vanish = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_SUM_NORM

    class Settings(EstimatorSettings):
        """tau: strength of the pull."""

        tau: float = Field(0.1, gt=0, description="weight of the squared log-ratio")

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄ by group."""
        return group_centered(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """(A − τ·sg(log ρ))·log π; log ρ within ±20, beyond which the pull is constant rather than gone."""
        tau: float = self.settings.tau
        pull_B1 = tau * batch.log_rho_B.detach().clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)[:, None]
        return (batch.advantages_B1 - pull_B1) * batch.logp_BT
