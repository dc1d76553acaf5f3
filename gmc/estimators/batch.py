"""What a rule sees: log-probs and rewards of one whole update batch, and nothing of the model.

Shapes: P groups, G responses a group, B = P*G sequences (group by group), T tokens (the longest response, padded right).
A response is what the model sampled: tokens that an environment wrote between its turns have no column here, so the tokens of
several turns follow each other and no rule needs to know of turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor


class Need(StrEnum):
    """Something a rule asks the trainer to bring. Nothing undeclared is computed, and reading it is an error."""

    BEHAVIOR_LOGP = "behavior log-probs"
    ENGINE_LOGP = "engine log-probs"
    LAGS = "version lags"
    BEHAVIOR_ENTROPY = "behavior entropies"
    ANCHOR_LOGP = "anchor log-probs"
    REFERENCE_LOGP = "reference log-probs"
    SCORE_NORMS = "score norms"
    PLANNED_UPDATES = "planned updates"


class UndeclaredNeedError(AttributeError):
    """A rule read something that it did not declare in `needs`."""


@dataclass(frozen=True)
class Batch:
    """One update batch. Values at padding are zero where a property says "masked", arbitrary elsewhere.

    rewards_PG: rewards; logp_BT: current log-probs of the sampled tokens, a leaf that requires grad; mask_BT: True at
    response tokens; max_response_tokens: the constant L_max of the run; update: the update index; brought: what was
    declared in `needs`; advantages_PG: set by the trainer after the first stage.
    """

    rewards_PG: Tensor
    logp_BT: Tensor
    mask_BT: Tensor
    max_response_tokens: int
    update: int
    brought: Mapping[Need, Tensor]
    advantages: Tensor | None = None

    def _bring(self, need: Need) -> Tensor:
        try:
            return self.brought[need]
        except KeyError:
            raise UndeclaredNeedError(f"the rule reads {need.value} but does not declare Need.{need.name} in `needs`") from None

    @property
    def groups(self) -> int:
        """P."""
        return self.rewards_PG.shape[0]

    @property
    def group_size(self) -> int:
        """G."""
        return self.rewards_PG.shape[1]

    @property
    def rewards_B(self) -> Tensor:
        """Rewards by sequence."""
        return self.rewards_PG.reshape(-1)

    @property
    def lengths_B(self) -> Tensor:
        """Response tokens of each sequence (0 is legal)."""
        return self.mask_BT.sum(-1)

    @property
    def behavior_logp_BT(self) -> Tensor:
        """log μ: log-probs of the sampled tokens under the policy that sampled them. `Need.BEHAVIOR_LOGP`."""
        return self._bring(Need.BEHAVIOR_LOGP)

    @property
    def log_ratio_BT(self) -> Tensor:
        """log r = log π − log μ per token, masked; carries gradient to `logp_BT`. `Need.BEHAVIOR_LOGP`."""
        difference_BT = self.logp_BT - self.behavior_logp_BT
        return torch.where(self.mask_BT, difference_BT, torch.zeros_like(difference_BT))

    @property
    def log_rho_B(self) -> Tensor:
        """log ρ: log of the trajectory ratio, the *sum* of the token log-ratios. `Need.BEHAVIOR_LOGP`."""
        return self.log_ratio_BT.sum(-1)

    @property
    def log_rho_PG(self) -> Tensor:
        """log ρ by group. `Need.BEHAVIOR_LOGP`."""
        return self.log_rho_B.reshape(self.rewards_PG.shape)

    @property
    def engine_logp_BT(self) -> Tensor:
        """Log-probs of the sampled tokens as the engine that sampled them reported them. `Need.ENGINE_LOGP`.

        A rule that needs them gets the trainer's for `behavior_logp_BT`: the same weights scored by two programs.
        """
        return self._bring(Need.ENGINE_LOGP)

    @property
    def log_mismatch_BT(self) -> Tensor:
        """log μ of the trainer − log μ of the engine per token, masked. `Need.BEHAVIOR_LOGP` and `Need.ENGINE_LOGP`."""
        difference_BT = self.behavior_logp_BT - self.engine_logp_BT
        return torch.where(self.mask_BT, difference_BT, torch.zeros_like(difference_BT))

    @property
    def lag_BT(self) -> Tensor:
        """Version lag d of each token, in updates (float). `Need.LAGS`."""
        return self._bring(Need.LAGS)

    @property
    def behavior_entropy_BT(self) -> Tensor:
        """Entropy (nats) of the behavior policy's next-token distribution at each response token. `Need.BEHAVIOR_ENTROPY`."""
        return self._bring(Need.BEHAVIOR_ENTROPY)

    @property
    def anchor_logp_BT(self) -> Tensor:
        """Log-probs under the policy `anchor_lag` updates back. `Need.ANCHOR_LOGP`."""
        return self._bring(Need.ANCHOR_LOGP)

    @property
    def reference_logp_BT(self) -> Tensor:
        """Log-probs under the initial policy, version 0. `Need.REFERENCE_LOGP`."""
        return self._bring(Need.REFERENCE_LOGP)

    @property
    def log_score_norm_B(self) -> Tensor:
        """log ‖∇_θ log π(y)‖² of each response (−inf for an empty one). `Need.SCORE_NORMS`."""
        return self._bring(Need.SCORE_NORMS)

    @property
    def planned_updates(self) -> int:
        """N, the planned number of updates. `Need.PLANNED_UPDATES`."""
        return int(self._bring(Need.PLANNED_UPDATES).item())

    @property
    def advantages_PG(self) -> Tensor:
        """Advantages by group, as the rule's first stage returned them. Raises `RuntimeError` before that stage."""
        if self.advantages is None:
            raise RuntimeError("advantages are read before the advantage stage has run")
        return self.advantages

    @property
    def advantages_B1(self) -> Tensor:
        """Advantages by sequence, ready to broadcast over tokens."""
        return self.advantages_PG.reshape(-1, 1)

    def with_advantages(self, advantages_PG: Tensor) -> "Batch":
        """The same batch after the advantage stage."""
        return replace(self, advantages=advantages_PG.detach())
