"""Exact mean and second moment of a rule's gradient, over all groups that a behavior policy can sample.

The gradient of a group is (1/G)·Σ_i Σ_t ∂objective/∂log π_it · ∇log π_it, before any loss normalizer: responses here all have T
tokens, so normalizers differ by a constant, and without one plain importance weighting is unbiased. Float64 throughout.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import TokenGradient, token_gradient
from gmc.lab.arms import acts_on_gradient, acts_on_rate
from gmc.lab.exact.groups import log_probability_P
from gmc.lab.exact.pairs import PolicyPair
from gmc.lab.exact.policy import TabularPolicy

NOT_MEASURED = "it was not measured. Run gmc.testing.check_estimator on the rule, or report this to its package"
LINEAR = 1e-9
"""How far a token's gradient may be from one weight of its response times the advantage, relatively."""


class NotExactError(UsageError):
    """A rule whose expectation is not a sum over single groups."""


@dataclass(frozen=True)
class Setting:
    """What a rule is told besides log-probs: the delay of every response and the planned updates, in updates."""

    lag: int = 64
    planned_updates: int = 800


@dataclass(frozen=True)
class Moments:
    """A rule on one pair of policies. mean_D: E g; second: E‖g‖²; gradient_D: ∇J of the current policy.

    removed: E of the group's mean of (ρ − weight)₊, the trajectory mass that the rule takes away; mass_second and mass_largest:
    mean square and maximum of the group's mean weight. Weight is ∂objective/∂log π over the advantage; the three are None for
    a rule that does not weight whole responses, whatever their advantage.
    """

    mean_D: Tensor
    second: float
    gradient_D: Tensor
    removed: float | None
    mass_second: float | None
    mass_largest: float | None

    @property
    def relative_bias(self) -> float:
        """‖E g − ∇J‖ / ‖∇J‖."""
        return float((self.mean_D - self.gradient_D).norm() / self.gradient_D.norm())

    @property
    def cosine(self) -> float:
        """Of E g and ∇J; 0 when the rule's mean is zero."""
        length = float(self.mean_D.norm() * self.gradient_D.norm())
        return float(self.mean_D @ self.gradient_D) / length if length else 0.0

    @property
    def scale(self) -> float:
        """⟨∇J, E g⟩ / ‖∇J‖²: 1 for an unbiased rule."""
        return float(self.mean_D @ self.gradient_D / (self.gradient_D @ self.gradient_D))

    @property
    def relative_variance(self) -> float:
        """(E‖g‖² − ‖E g‖²) / ‖∇J‖² of one group."""
        return (self.second - float(self.mean_D @ self.mean_D)) / float(self.gradient_D @ self.gradient_D)

    def quality(self, prompts: int) -> float:
        """Q = ⟨∇J, E g⟩² / (‖∇J‖²·(‖E g‖² + Var/P)): the best gain of one step as a share of the noise-free one.

        Free of the step's size, so rules of any scale compare. 0 for a rule that gives nothing.
        """
        length = float(self.gradient_D @ self.gradient_D)
        mean = float(self.mean_D @ self.mean_D)
        noisy = mean + (self.second - mean) / prompts
        return float(self.mean_D @ self.gradient_D) ** 2 / (length * noisy) if noisy > 0 else 0.0


def refusal(rule: Estimator) -> str | None:
    """Why a rule has no exact moments here, None when it has."""
    if rule.scope == "batch":
        return "its weights look at the whole batch (scope batch), and here all groups are one batch"
    if acts_on_gradient(rule):
        return "it acts on the accumulated gradient (stage 3), which here is the sum over all groups"
    if acts_on_rate(rule):
        return "it scales the learning rate of a whole batch (stage 4), and here all groups are one batch"
    missing = sorted(need.value for need in rule.needs if need not in BROUGHT)
    return f"it needs {', '.join(missing)}, which this model does not have" if missing else None


BROUGHT = frozenset(
    {Need.BEHAVIOR_LOGP, Need.LAGS, Need.BEHAVIOR_ENTROPY, Need.ANCHOR_LOGP, Need.SCORE_NORMS, Need.PLANNED_UPDATES}
)


def exact_moments(
    rule: Estimator,
    policy: TabularPolicy,
    pair: PolicyPair,
    rewards_K: Tensor,
    groups_PG: Tensor,
    setting: Setting | None = None,
) -> Moments:
    """The moments of one rule, which is called once, on all groups as one batch.

    groups_PG: all multisets of response indices. Raises `NotExactError` with the reason for a rule that is not a function of
    single groups, `EstimatorStageError` when it breaks its contract.
    """
    reason = refusal(rule)
    if reason is not None:
        raise NotExactError(f"estimator {rule.name}: {reason}")
    batch = all_groups_batch(rule, policy, pair, rewards_K, groups_PG, setting or Setting())
    calls = RuleCalls(rule, batch.update, NOT_MEASURED)
    tokens = token_gradient(calls, batch)
    gradients_PD = _group_gradients(policy, pair, groups_PG, tokens.gradient_BT)
    probability_P = log_probability_P(groups_PG, policy.logp_KT(pair.behavior_D).sum(-1)).exp()
    rho_K = (policy.logp_KT(pair.current_D) - policy.logp_KT(pair.behavior_D)).sum(-1).exp()
    mass = _mass(calls, tokens, rho_K[groups_PG], probability_P)
    return Moments(
        mean_D=probability_P @ gradients_PD,
        second=float(probability_P @ (gradients_PD**2).sum(-1)),
        gradient_D=policy.gradient_D(pair.current_D, rewards_K),
        removed=mass[0] if mass else None,
        mass_second=mass[1] if mass else None,
        mass_largest=mass[2] if mass else None,
    )


def all_groups_batch(
    rule: Estimator, policy: TabularPolicy, pair: PolicyPair, rewards_K: Tensor, groups_PG: Tensor, setting: Setting
) -> Batch:
    """All groups as one update batch, with what the rule needs and nothing else."""
    rows_B = groups_PG.reshape(-1)
    logp_BT = policy.logp_KT(pair.current_D)[rows_B]
    score_norm_K = policy.scores_KTD(pair.current_D).sum(1).square().sum(-1)
    everything = {
        Need.BEHAVIOR_LOGP: policy.logp_KT(pair.behavior_D)[rows_B],
        Need.LAGS: torch.full_like(logp_BT, setting.lag),
        Need.BEHAVIOR_ENTROPY: policy.entropy_KT(pair.behavior_D)[rows_B],
        Need.ANCHOR_LOGP: policy.logp_KT(pair.anchor_D)[rows_B],
        Need.SCORE_NORMS: score_norm_K.log()[rows_B],
        Need.PLANNED_UPDATES: torch.tensor(setting.planned_updates),
    }
    return Batch(
        rewards_PG=rewards_K[groups_PG],
        logp_BT=logp_BT.clone().requires_grad_(),
        mask_BT=torch.ones_like(logp_BT, dtype=torch.bool),
        max_response_tokens=policy.tokens,
        update=setting.lag,
        brought={need: everything[need] for need in rule.needs},
    )


def _group_gradients(policy: TabularPolicy, pair: PolicyPair, groups_PG: Tensor, gradient_BT: Tensor) -> Tensor:
    """Each group's gradient in θ: what its tokens are worth, summed by response and position, times their scores."""
    groups, size = groups_PG.shape
    worth_PGT = gradient_BT.double().reshape(groups, size, policy.tokens) / size
    worth_PKT = worth_PGT.new_zeros(groups, len(policy.responses_KT), policy.tokens)
    worth_PKT.scatter_add_(1, groups_PG[:, :, None].expand_as(worth_PGT), worth_PGT)
    return worth_PKT.flatten(1) @ policy.scores_KTD(pair.current_D).flatten(0, 1)


def _mass(calls: RuleCalls, tokens: TokenGradient, rho_PG: Tensor, probability_P: Tensor) -> tuple[float, float, float] | None:
    """Removed mass, and mean square and maximum of a group's mean weight; None for a rule without weights of responses.

    A group of equal rewards has no advantage that would show its weights, so the rule is asked once more with advantages of 1.
    """
    batch = tokens.batch
    weight_BT = calls.objective_gradient(batch.with_advantages(torch.ones_like(batch.advantages_PG)))
    weight_B1 = weight_BT.mean(-1, keepdim=True)
    if not torch.allclose((weight_B1 * batch.advantages_B1).expand_as(weight_BT), tokens.gradient_BT, rtol=LINEAR, atol=LINEAR):
        return None
    weight_PG = weight_B1.double().reshape(rho_PG.shape)
    mean_P = weight_PG.mean(-1)
    removed = float(probability_P @ (rho_PG - weight_PG).clamp(min=0).mean(-1))
    return removed, float(probability_P @ mean_P**2), float(mean_P.max())
