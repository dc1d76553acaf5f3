"""Every rule on one stored batch: norms, cosines and weights, side by side."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gmc.comparison.fresh import fresh_gradients, mean_gradient
from gmc.comparison.measure import Measurer, Weights, cosine
from gmc.comparison.stored import StoredBatch
from gmc.errors import DataError, UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.errors import EstimatorStageError
from gmc.estimators.gradient import Gradient
from gmc.estimators.importance import ImportanceSampling
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.sample_size import log_ess_share
from gmc.scoring.scorer import Scorer


@dataclass(frozen=True)
class RuleRow:
    """One rule's line: its gradient against plain importance weighting and the on-policy gradient, and its weights."""

    name: str
    normalizer: str
    norm: float
    cosine_is: float
    cosine_on_policy: float | None
    learning_rate_scale: float
    weights: Weights


@dataclass(frozen=True)
class Comparison:
    """Rows by rule, and why the others could not be measured. ess_share: of the raw ratios. fresh_agreement: cosine of the
    on-policy gradients of two halves of the fresh responses, a ceiling for what a cosine with them can mean."""

    rows: list[RuleRow]
    not_measured: dict[str, str]
    responses: int
    ess_share: float
    log_rho_quantiles: list[float]
    delay_mean: float
    fresh_agreement: float | None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def compare_rules(
    rules: Sequence[Estimator],
    scorer: Scorer,
    stored: StoredBatch,
    *,
    normalizer: Normalizer | None = None,
    fresh: int = 0,
    seed: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> Comparison:
    """Measure rules on stored rollouts under the scorer's policy. Nothing is trained or written.

    normalizer: one for all; default each rule's own, and that of `is` for the references. fresh: repeats of on-policy
    sampling, 0 for none. advance: called with finished units, one a rule and one a fresh response.
    """
    measurer = Measurer(scorer, stored, normalizer)
    reference, _, _ = measurer.gradient(ImportanceSampling())
    on_policy, agreement = None, None
    if fresh:
        chosen = normalizer or ImportanceSampling.normalizer
        gradients = fresh_gradients(scorer, stored, chosen, repeats=fresh, seed=seed, advance=advance)
        on_policy = mean_gradient(gradients)
        if fresh > 1:
            agreement = cosine(mean_gradient(gradients[: fresh // 2]), mean_gradient(gradients[fresh // 2 :]))
    rows, not_measured = [], {}
    for rule in rules:
        try:
            rows.append(_row(rule, measurer, reference, on_policy, normalizer))
        except (DataError, UsageError, EstimatorStageError) as error:
            not_measured[rule.name] = str(error)
        advance(1)
    log_rho_B = measurer.log_rho_B
    delays = [stored.version - row.policy_version for group in stored.groups for row in group]
    return Comparison(
        rows=rows,
        not_measured=not_measured,
        responses=len(log_rho_B),
        ess_share=math.exp(log_ess_share(log_rho_B)),
        log_rho_quantiles=log_rho_B.quantile(log_rho_B.new_tensor([0.05, 0.5, 0.95])).tolist(),
        delay_mean=math.fsum(delays) / len(delays),
        fresh_agreement=agreement,
    )


def _row(
    rule: Estimator, measurer: Measurer, reference: Gradient, on_policy: Gradient | None, normalizer: Normalizer | None
) -> RuleRow:
    gradient, weights, scale = measurer.gradient(rule)
    return RuleRow(
        name=rule.name,
        normalizer=str(normalizer or rule.normalizer),
        norm=gradient.norm(),
        cosine_is=cosine(gradient, reference),
        cosine_on_policy=None if on_policy is None else cosine(gradient, on_policy),
        learning_rate_scale=scale,
        weights=weights,
    )
