"""One optimizer update: the four stages of a rule around one forward and one backward pass of the model."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.delays.version_0 import VERSION_0_SHARE, RateMass, applied_rate
from gmc.errors import GmcError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.gradient import Gradient, Skip
from gmc.gradients.assemble import assemble, behavior_logp, lags
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import model_gradient, objective_weights, token_gradient
from gmc.gradients.weighing import Weighing
from gmc.models import LanguageModel
from gmc.parameters.base import Parameters
from gmc.rewards.build import reward_labels
from gmc.scoring.forward import Forward
from gmc.scoring.scorer import Scorer, sampled_mask
from gmc.store.shards.groups import Groups, token_ids
from gmc.training.anchors import Anchors, Reference
from gmc.training.metrics import REPORT_EPSILON, ratio_metrics, rollout_metrics, weight_metrics
from gmc.training.optimizer import learning_rate, set_learning_rate

CURE = "Go on from the last checkpoint with --resume and a lower optimizer.learning_rate, or start anew with one."


class NonFiniteError(GmcError):
    """A loss or gradient was NaN or infinite and the update was not applied, or it left weights that are no numbers."""


@dataclass
class Updater:
    """Applies updates to `parameters` in place, whose ranks all take part, each with a scorer that shares the work with them.

    planned_updates: the horizon N of the learning rate. rate_mass: of all updates so far. reference: of a rule that needs the
    initial policy. knows_lags: whether the delays of the rollouts are known.
    """

    parameters: Parameters
    scorer: Scorer
    estimator: Estimator
    optimizer: torch.optim.Optimizer
    anchors: Anchors
    settings: RunSettings
    planned_updates: int
    rate_mass: RateMass = field(default_factory=RateMass)
    reference: Reference | None = None
    weighing: Weighing = field(default_factory=Weighing)
    knows_lags: bool = True

    @property
    def model(self) -> LanguageModel:
        """The model whose parameters these are."""
        return self.parameters.model

    def run(self, groups: Groups, update: int) -> dict[str, float]:
        """Train on the groups of one update and return its metrics.

        Raises `NonFiniteError`, or `EstimatorStageError` when the rule breaks its contract; the weights are then unchanged, but
        for a step that has left them without numbers, after which nothing of them may be kept.
        """
        started = time.perf_counter()
        rule = RuleCalls(self.estimator, update)
        self.anchors.remember()
        computed = self._computed(groups, update)
        current = self._forward(groups, computed, update)
        tokens = token_gradient(rule, self._assemble(groups, current.logp_BT, current.mask_BT, computed, update))
        batch = tokens.batch
        self._require_finite([tokens.gradient_BT], groups, update, "the loss gradient")

        loss_gradient_BT = -objective_weights(tokens, self.settings.train.normalizer)
        if current.passed_BT is not None and not current.has_passed(loss_gradient_BT):
            self.weighing.found_wrong(self.estimator)
        summed = model_gradient(self.parameters, current, loss_gradient_BT)
        if rule.uses_gradient:
            self._require_finite(summed.tensors, groups, update, "the gradient")
        gradient = rule.gradient(summed)
        scale = rule.learning_rate_scale(batch)
        rate = learning_rate(update, self.planned_updates, self.settings.optimizer)
        norm = 0.0 if isinstance(gradient, Skip) else self._clipped(gradient, groups, update)

        metrics = rollout_metrics(groups, update if self.knows_lags else None, reward_labels(self.settings.reward.parts))
        metrics |= self._ratio_metrics(groups, batch, rule.epsilon(batch, REPORT_EPSILON))
        metrics |= weight_metrics(tokens.gradient_BT, batch.advantages_PG.reshape(-1), batch.mask_BT)
        metrics |= rule.metrics(batch)
        if not isinstance(gradient, Skip):
            set_learning_rate(self.optimizer, rate * scale)
            self.parameters.step(self.optimizer)
            self._require_numbers(update, rate * scale)
        metrics |= {
            "optimizer/learning_rate": rate,
            "optimizer/learning_rate_scale": scale,
            "optimizer/gradient_norm": norm,
            "optimizer/skipped": float(isinstance(gradient, Skip)),
            "time/update_seconds": time.perf_counter() - started,
        }
        if self.knows_lags:
            self.rate_mass.add(update, applied_rate(metrics), [group[0].policy_version for group in groups])
        if self.rate_mass.share is not None:
            metrics[VERSION_0_SHARE] = self.rate_mass.share
        return metrics

    def _computed(self, groups: Groups, update: int) -> dict[Need, Tensor]:
        """What the rule needs and only the model can give. Comes before the forward pass: lent weights would void its graph."""
        needs, computed, ids = self.estimator.needs, {}, token_ids(groups)
        if Need.SCORE_NORMS in needs:
            computed[Need.SCORE_NORMS] = self.scorer.log_score_norms(*ids)
        if Need.ANCHOR_LOGP in needs:
            with self.anchors.weights_of(update):
                computed[Need.ANCHOR_LOGP] = self.scorer.score(*ids).logp_BT
        if Need.REFERENCE_LOGP in needs:
            assert self.reference is not None  # whoever opens a session makes it for a rule with this need
            with self.reference.weights():
                computed[Need.REFERENCE_LOGP] = self.scorer.score(*ids).logp_BT
        return computed

    def _forward(self, groups: Groups, computed: dict[Need, Tensor], update: int) -> Forward:
        """Current log-probs. Where the rule's scope allows it, the gradient goes back micro-batch by micro-batch with them.

        At delay 0 the batch was scored with these weights when it was made, which is a forward pass without a graph: its rows
        with a gradient are then run once more. The choice depends on the rollouts alone, so a resumed run makes it again.
        """
        ids = token_ids(groups)
        if self.settings.rollout.logprobs == "trainer" and self.knows_lags and not any(lags(groups, update)):
            return self.scorer.forward(*ids)
        self.parameters.clear()

        def assembled() -> Batch:
            mask_BT = sampled_mask(*ids[1:], self.model.device)
            return self._assemble(groups, torch.zeros(mask_BT.shape, device=mask_BT.device), mask_BT, computed, update)

        weigh = self.weighing.of(self.estimator, update, assembled, self.settings.train.normalizer)
        return self.scorer.forward_once(*ids, weigh=weigh)

    def _assemble(self, groups: Groups, logp_BT: Tensor, mask_BT: Tensor, computed: dict[Need, Tensor], update: int) -> Batch:
        return assemble(
            groups,
            logp_BT,
            mask_BT,
            update=update,
            needs=self.estimator.needs,
            logprob_kind=self.settings.rollout.logprobs,
            max_response_tokens=self.settings.rollout.max_tokens,
            planned_updates=self.planned_updates,
            computed=computed,
        )

    def _ratio_metrics(self, groups: Groups, batch: Batch, epsilon: float) -> dict[str, float]:
        behavior_BT = behavior_logp(groups, self.settings.rollout.logprobs, batch.logp_BT.shape[1]).to(batch.logp_BT.device)
        difference_BT = batch.logp_BT.detach() - behavior_BT
        log_ratio_BT = torch.where(batch.mask_BT, difference_BT, torch.zeros_like(difference_BT))
        return ratio_metrics(log_ratio_BT, batch.mask_BT, batch.group_size, epsilon)

    def _clipped(self, gradient: Gradient, groups: Groups, update: int) -> float:
        """Put the gradient in place for the optimizer, clipped; returns its norm before."""
        self.parameters.put(gradient)
        norm = self.parameters.clip(self.settings.optimizer.clip_norm)
        self._require_finite([norm], groups, update, "the gradient")
        return norm.item()

    def _require_finite(self, tensors: Sequence[Tensor], groups: Groups, update: int, what: str) -> None:
        if not self.parameters.finite(tensors):
            batches = sorted({group[0].batch for group in groups})
            raise NonFiniteError(
                f"update {update} (batches {batches}): {what} of estimator {self.estimator.name} is not finite; the update was "
                "not applied. Go on from the last checkpoint with --resume and a lower learning rate or another estimator."
            )

    def _require_numbers(self, update: int, rate: float) -> None:
        """Raise `NonFiniteError` when a step has diverged, before anybody samples with its weights or keeps them."""
        if not self.parameters.finite(self.parameters.tensors):
            raise NonFiniteError(
                f"update {update}: training has diverged: after its step (learning rate {rate:.3g}) the weights hold "
                f"values that are no numbers; nothing of it is kept. {CURE}"
            )
