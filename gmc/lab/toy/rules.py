"""Installed rules over many toy runs: all runs as one batch where the rule's scope allows it, one batch a run elsewhere.

A gradient is Σ ∂objective/∂log π · ∇log π / (P·G·T): every response has T tokens, so all loss normalizers differ by a constant,
and one is used for all rules.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.gradient import Gradient, Skip
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import token_gradient
from gmc.lab.arms import acts_on_gradient, acts_on_rate

NOT_TRAINED = "its runs were not trained. Run gmc.testing.check_estimator on the rule, or report this to its package"

BROUGHT = frozenset(
    {Need.BEHAVIOR_LOGP, Need.LAGS, Need.BEHAVIOR_ENTROPY, Need.ANCHOR_LOGP, Need.SCORE_NORMS, Need.PLANNED_UPDATES}
)


@dataclass(frozen=True)
class RuleStep:
    """What a rule made of an update. gradient_RD: uphill; scale_R: of the learning rate; active_R: False where it skips."""

    gradient_RD: Tensor
    scale_R: Tensor | None = None
    active_R: Tensor | None = None


class RuleOverRuns:
    """One rule driving R runs."""

    def __init__(self, rule: Estimator, runs: int) -> None:
        """Raises `UsageError` for a rule that needs what this model does not have."""
        missing = sorted(need.value for need in rule.needs if need not in BROUGHT)
        if missing:
            raise UsageError(f"estimator {rule.name}: it needs {', '.join(missing)}, which this model does not have")
        self.needs, self.anchor_lag = rule.needs, rule.anchor_lag
        self.together = not (rule.scope == "batch" or acts_on_gradient(rule) or acts_on_rate(rule) or rule.state_dict())
        self._rules = [rule] if self.together else [copy.deepcopy(rule) for _ in range(runs)]

    def step(self, batch: Batch, runs: int, model_gradient: Callable[[Tensor], Tensor]) -> RuleStep:
        """Stages 1 to 4. batch: all runs, run by run; model_gradient: from worth_BT to one row of θ's gradient a run.

        Raises `EstimatorStageError` when the rule breaks its contract.
        """
        if self.together:
            tokens = token_gradient(RuleCalls(self._rules[0], batch.update, NOT_TRAINED), batch)
            return RuleStep(model_gradient(tokens.gradient_BT))
        calls = [RuleCalls(rule, batch.update, NOT_TRAINED) for rule in self._rules]
        parts = [token_gradient(call, part) for call, part in zip(calls, _by_run(batch, runs), strict=True)]
        gradient_RD = model_gradient(torch.cat([tokens.gradient_BT for tokens in parts]))
        active_R = torch.ones(runs, dtype=torch.bool)
        for run, call in enumerate(calls):
            result = call.gradient(Gradient([gradient_RD[run].clone()]))
            if isinstance(result, Skip):
                active_R[run] = False
            else:
                gradient_RD[run] = result.tensors[0]
        scales = [call.learning_rate_scale(tokens.batch) for call, tokens in zip(calls, parts, strict=True)]
        return RuleStep(gradient_RD, torch.tensor(scales, dtype=gradient_RD.dtype), active_R)


def _by_run(batch: Batch, runs: int) -> list[Batch]:
    """The batch of each run."""
    rows, groups = len(batch.logp_BT) // runs, batch.groups // runs
    parts = []
    for run in range(runs):
        mine = slice(run * rows, (run + 1) * rows)
        brought = {need: value if value.ndim == 0 else value[mine] for need, value in batch.brought.items()}
        parts.append(
            Batch(
                rewards_PG=batch.rewards_PG[run * groups : (run + 1) * groups],
                logp_BT=batch.logp_BT.detach()[mine].clone().requires_grad_(),
                mask_BT=batch.mask_BT[mine],
                max_response_tokens=batch.max_response_tokens,
                update=batch.update,
                brought=brought,
            )
        )
    return parts
