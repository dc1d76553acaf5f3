"""The contract of a correction rule: one small class, four stages, each with a default.

An update runs the stages in this order; a rule overrides only what it changes.

1. `advantages(batch) -> advantages_PG`
2. `objective(batch) -> objective_BT`, called once on the whole update batch, on log-probs only. The trainer masks it,
   divides by a global, fixed denominator (`normalizer`), takes ∂/∂logp_BT and sends that through the model micro-batch by
   micro-batch. So a rule may sort, search or whiten over the whole batch, and cannot depend on micro-batches or padding.
   Stages 1 and 2 of a copy may be called before, while parts of the batch are unknown (`gmc.gradients.weighing`).
3. `gradient(gradient) -> Gradient | SKIP`, after accumulation and before clipping.
4. `learning_rate_scale(batch) -> float`; the schedule's rate is restored after the step.

How the known rules fit, none of them touching the trainer:

- **GMC, TIC, truncation** (weights of a response or group): stage 2 returns `weight.detach() * advantage * logp`.
- **GRPO, DAPO, GSPO, BAPO** (clipped surrogates): stage 2 returns the min; GSPO builds s = exp(mean log-ratio) with gradient;
  BAPO first searches its two bounds over `batch` and then clips.
- **M2PO**: stage 2 sorts all candidate tokens of the batch and masks; scope "batch".
- **ESTR**: declares `Need.BEHAVIOR_ENTROPY` and masks tokens by squared log-ratio over entropy.
- **A-3PO**: declares `Need.LAGS`; stage 2 forms the anchor (1/d)·log μ + (1 − 1/d)·log π with log π detached.
- **Decoupled PPO**: declares `Need.ANCHOR_LOGP` and an `anchor_lag`.
- **VCPO**: declares `Need.SCORE_NORMS`; stage 1 is its minimum-variance baseline (it sees ratios, norms and rewards), stage 2
  the truncated weights, stage 4 the effective-sample-size scale.
- **GAC**: holds another rule as `base` and delegates stages 1, 2 and 4 to it; stage 3 compares with the previous gradient,
  which is its state.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from gmc.estimators.batch import Batch, Need
from gmc.estimators.gradient import Gradient, Skip
from gmc.estimators.normalizer import Normalizer

Scope = Literal["token", "sequence", "group", "batch"]

LOG_RATIO_CLAMP = 20.0
"""Rules with unbounded weights clamp log-ratios at ±20 before exp, so that a weight stays below 4.9e8."""


class EstimatorSettings(BaseModel):
    """Base of every rule's settings: typed, immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Estimator(ABC):
    """Base of every correction rule. Subclass it, set the declarations, override the stages you change.

    name: as on the command line. summary: one line. formula: the gradient weight or surrogate, in plain text. reference:
    paper, equation, repository. evidence: what is certain about the formula and what is reconstructed.
    scope: how far one weight looks. needs: what the trainer must bring. on_policy_weight: gradient weight over advantage
    when π = μ. bounded: whether weights are bounded for every ratio (else clamp at `LOG_RATIO_CLAMP`).
    equal_rewards_vanish: whether a group of equal rewards contributes exactly zero. normalizer: the default.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    formula: ClassVar[str]
    reference: ClassVar[str]
    evidence: ClassVar[str] = ""
    scope: Scope = "sequence"
    needs: frozenset[Need] = frozenset({Need.BEHAVIOR_LOGP})
    on_policy_weight: float = 1.0
    bounded: bool = True
    equal_rewards_vanish: bool = True
    normalizer: Normalizer = Normalizer.SEQ_MEAN_TOKEN_SUM_NORM
    anchor_lag: int = 0
    Settings: ClassVar[type[EstimatorSettings]] = EstimatorSettings

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings

    def advantages(self, batch: Batch) -> Tensor:
        """Advantages_PG. Default: leave-one-out, the advantage of GMC and TIC in arXiv 2610.01896."""
        return leave_one_out(batch.rewards_PG)

    @abstractmethod
    def objective(self, batch: Batch) -> Tensor:
        """Objective_BT, to be maximized; its gradient in `batch.logp_BT` is what reaches the model."""

    def gradient(self, gradient: Gradient) -> Gradient | Skip:
        """The gradient to use, or SKIP to leave the optimizer untouched. Default: unchanged."""
        return gradient

    def learning_rate_scale(self, batch: Batch) -> float:
        """Factor on the scheduled learning rate for this update only. Default: 1."""
        return 1.0

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """Finite numbers about this update, logged as `NAME/key`. Called after all stages. Default: none."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """What must survive a resume, as tensors. Default: nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, all but single numbers on the model's device.

        Raises `ValueError` on keys the rule does not know.
        """
        if state:
            raise ValueError(f"{self.name} keeps no state but was given {sorted(state)}")


def leave_one_out(rewards_PG: Tensor) -> Tensor:
    """A_i = R_i − mean of the other G−1 rewards = G/(G−1)·(R_i − R̄). A group of equal rewards gives exactly zero.

    rewards_PG: rewards by group; returns advantages_PG. Raises `ValueError` for groups of one (there are no others).
    Source: RLOO; used for GMC and TIC in arXiv 2610.01896.
    """
    group_size = rewards_PG.shape[1]
    if group_size < 2:
        raise ValueError("a leave-one-out advantage needs at least 2 responses a group")
    return group_centered(rewards_PG) * (group_size / (group_size - 1))


def group_centered(rewards_PG: Tensor) -> Tensor:
    """A_i = R_i − R̄ by group (Dr. GRPO's advantage; vanilla GRPO in arXiv 2610.01896). Equal rewards give exactly zero."""
    centered_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    equal_P1 = rewards_PG.amax(dim=1, keepdim=True) == rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(equal_P1, torch.zeros_like(centered_PG), centered_PG)
