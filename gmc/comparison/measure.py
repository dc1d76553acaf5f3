"""The gradient of one rule on stored rollouts, and what it did to their weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gmc.comparison.stored import StoredBatch
from gmc.errors import DataError
from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.gradient import Gradient, Skip
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.sample_size import ess_share
from gmc.gradients.assemble import assemble, behavior_logp
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import model_gradient, objective_weights, token_gradient
from gmc.models import load_model
from gmc.scoring.scorer import Scorer
from gmc.store.run_directory import policy_name
from gmc.store.shards.groups import token_ids

COMPUTED = (Need.SCORE_NORMS, Need.ANCHOR_LOGP, Need.REFERENCE_LOGP)
"""Needs that a model has to be run for."""

NOT_MEASURED = "it was not measured. Run gmc.testing.check_estimator on the rule, or report this to its package"


@dataclass(frozen=True)
class Weights:
    """Weights of responses (mean over tokens of ∂objective/∂log π over the advantage) with an advantage other than zero.

    kept_share: of their tokens, those with a weight other than zero. removed_mass: mean of (ρ − weight)₊, the trajectory mass
    the rule takes away (float32 rounding left out, ρ clamped at e^20). ess_share: (Σw)²/(n·Σw²), 0 without any weight.
    """

    q05: float
    q50: float
    q95: float
    largest: float
    kept_share: float
    removed_mass: float
    ess_share: float


class Measurer:
    """Measures rules one after the other on one batch under one model. The parameters' `.grad` are used."""

    def __init__(self, scorer: Scorer, stored: StoredBatch, normalizer: Normalizer | None = None) -> None:
        """normalizer: for every rule; default each rule's own."""
        self._scorer, self._stored, self._normalizer = scorer, stored, normalizer
        self._ids = token_ids(stored.groups)
        self._current = scorer.forward(*self._ids)
        self._computed: dict[tuple[Need, int], Tensor] = {}

    def batch(self, rule: Estimator) -> Batch:
        """The batch with what the rule needs. Raises `DataError` when the shards or the policy folder lack something."""
        computed: Mapping[Need, Tensor] = {need: self._compute(need, rule) for need in COMPUTED if need in rule.needs}
        return assemble(
            self._stored.groups,
            self._current.logp_BT,
            self._current.mask_BT,
            update=self._stored.version,
            needs=rule.needs,
            logprob_kind=self._stored.logprob_kind,
            max_response_tokens=self._stored.sampling.max_tokens,
            planned_updates=max(1, self._stored.version),
            computed=computed,
        )

    def gradient(self, rule: Estimator) -> tuple[Gradient, Weights, float]:
        """The rule's gradient of the objective (ascent direction), its weights, and its learning-rate scale.

        Raises `EstimatorStageError` when the rule breaks its contract, `DataError` when it gives no gradient here.
        """
        calls = RuleCalls(rule, self._stored.version, NOT_MEASURED)
        tokens = token_gradient(calls, self.batch(rule))
        if not tokens.finite:
            raise DataError(f"estimator {rule.name}: its gradient on these rollouts is not finite")
        grad_BT = objective_weights(tokens, self._normalizer or rule.normalizer)
        result = calls.gradient(model_gradient(self._scorer.parameters, self._current, grad_BT).clone())
        if isinstance(result, Skip):
            raise DataError(f"estimator {rule.name}: skips this update")
        return result, self._weights(tokens.gradient_BT, tokens.batch), calls.learning_rate_scale(tokens.batch)

    def _compute(self, need: Need, rule: Estimator) -> Tensor:
        key = (need, rule.anchor_lag if need is Need.ANCHOR_LOGP else 0)
        if key not in self._computed:
            self._computed[key] = self._run(need, rule.anchor_lag)
        return self._computed[key]

    def _run(self, need: Need, lag: int) -> Tensor:
        if need is Need.SCORE_NORMS:
            return self._scorer.log_score_norms(*self._ids)
        if need is Need.REFERENCE_LOGP:
            return self._logp_of(0, "the initial policy")
        return self._logp_of(max(0, self._stored.version - lag), f"the policy {lag} updates back")

    def _logp_of(self, version: int, what: str) -> Tensor:
        model = self._scorer.model
        if version == self._stored.version:
            return self._current.logp_BT
        folder = Path(model.source).parent / policy_name(version)
        if not folder.is_dir():
            raise DataError(f"needs {what}, and {folder} is not there")
        other = Scorer(load_model(folder, device=str(model.device)), temperature=self._stored.sampling.temperature)
        return other.score(*self._ids).logp_BT

    def _weights(self, gradient_BT: Tensor, batch: Batch) -> Weights:
        counted_B = (batch.advantages_B1[:, 0] != 0) & (batch.lengths_B > 0)
        weight_BT = torch.where(batch.mask_BT, gradient_BT, 0.0).double()[counted_B] / batch.advantages_B1[counted_B].double()
        mask_BT = batch.mask_BT[counted_B]
        if not len(weight_BT):
            raise DataError("every group has equal rewards, so no response has a weight; take more shards")
        weight_B = weight_BT.sum(-1) / mask_BT.sum(-1)
        rho_B = self.log_rho_B[counted_B].clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()
        levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64, device=weight_B.device)
        low, middle, high = torch.quantile(weight_B, levels).tolist()
        return Weights(
            q05=low,
            q50=middle,
            q95=high,
            largest=float(weight_B.max()),
            kept_share=float((weight_BT[mask_BT] != 0).double().mean()),
            removed_mass=float(torch.where(rho_B - weight_B > 1e-5 * rho_B, rho_B - weight_B, 0.0).mean()),
            ess_share=ess_share(weight_B),
        )

    @property
    def log_rho_B(self) -> Tensor:
        """log ρ of every stored response under the policy, float64."""
        current_BT = self._current.logp_BT
        behavior_BT = behavior_logp(self._stored.groups, self._stored.logprob_kind, current_BT.shape[1])
        return (current_BT - behavior_BT.to(current_BT.device)).double().sum(-1)


def cosine(one: Gradient, other: Gradient) -> float:
    """Cosine of two gradients; 0 when either is zero."""
    product = one.norm() * other.norm()
    return one.dot(other) / product if product > 0 and math.isfinite(product) else 0.0
