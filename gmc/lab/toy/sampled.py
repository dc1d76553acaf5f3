"""The responses that one update of every run trains on, as rules see them, and the gradient that their answer makes.

Shapes: R runs, P groups, G responses a group, T tokens, W previous ids, V ids, E embedding, D parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.estimators.batch import Batch, Need
from gmc.lab.toy.policy import at_cells
from gmc.lab.toy.task import Task


@dataclass(frozen=True)
class Sampled:
    """prompt_RP: indices into the task's prompts; cells_RPTG: the sampled tokens; two tables of log-probs: of the policy that
    sampled and of the current one. Make it with `draw`."""

    task: Task
    prompt_RP: Tensor
    prompts_RPE: Tensor
    cells_RPTG: Tensor
    behavior_RPTWV: Tensor
    current_RPTWV: Tensor

    @classmethod
    def draw(
        cls, task: Task, theta_RD: Tensor, behavior: Callable[[Tensor], Tensor], prompt_RP: Tensor, uniforms_RPGT: Tensor
    ) -> "Sampled":
        """Sample from the behavior policy, given as a function from prompts_RPE to its table of log-probs."""
        prompts_RPE = task.prompts_RME[torch.arange(len(prompt_RP))[:, None], prompt_RP]
        behavior_RPTWV = behavior(prompts_RPE)
        cells_RPTG = task.policy.sample(behavior_RPTWV, uniforms_RPGT)
        return cls(task, prompt_RP, prompts_RPE, cells_RPTG, behavior_RPTWV, task.policy.log_table(theta_RD, prompts_RPE))

    @property
    def spread_R(self) -> Tensor:
        """Standard deviation of log ρ over each run's responses."""
        difference_RPTG = at_cells(self.current_RPTWV, self.cells_RPTG) - at_cells(self.behavior_RPTWV, self.cells_RPTG)
        return difference_RPTG.sum(2).flatten(1).std(1)

    def batch(
        self, needs: frozenset[Need], *, update: int, planned_updates: int, lag_P: Tensor, anchor: Callable[[], Tensor]
    ) -> Batch:
        """All runs as one update batch, run by run, with exactly what `needs` names. anchor: gives the anchor's θ_RD."""
        logp_BT = _rows(at_cells(self.current_RPTWV, self.cells_RPTG))
        brought: dict[Need, Tensor] = {}
        for need in needs:
            match need:
                case Need.BEHAVIOR_LOGP:
                    brought[need] = _rows(at_cells(self.behavior_RPTWV, self.cells_RPTG))
                case Need.LAGS:
                    brought[need] = _rows(lag_P.double()[None, :, None, None].expand(self.cells_RPTG.shape))
                case Need.BEHAVIOR_ENTROPY:
                    brought[need] = self._entropies_BT()
                case Need.ANCHOR_LOGP:
                    table_RPTWV = self.task.policy.log_table(anchor(), self.prompts_RPE)
                    brought[need] = _rows(at_cells(table_RPTWV, self.cells_RPTG))
                case Need.SCORE_NORMS:
                    brought[need] = log_score_norms(self.prompts_RPE, self.cells_RPTG, self.current_RPTWV)
                case _:
                    brought[need] = torch.tensor(planned_updates)
        return Batch(
            rewards_PG=self.task.rewards(self.cells_RPTG, self.prompt_RP).flatten(0, 1),
            logp_BT=logp_BT.requires_grad_(),
            mask_BT=torch.ones_like(logp_BT, dtype=torch.bool),
            max_response_tokens=self.task.policy.tokens,
            update=update,
            brought=brought,
        )

    def gradient(self, worth_BT: Tensor) -> Tensor:
        """Σ worth · ∇ log π / (P·G·T), one row a run."""
        runs, groups, tokens, size = self.cells_RPTG.shape
        worth_RPTG = worth_BT.reshape(runs, groups, size, tokens).transpose(2, 3) / (groups * size * tokens)
        return self.task.policy.gradient(self.current_RPTWV, self.prompts_RPE, self.cells_RPTG, worth_RPTG)

    def _entropies_BT(self) -> Tensor:
        entropy_RPTW = -(self.behavior_RPTWV.exp() * self.behavior_RPTWV).sum(-1)
        return _rows(entropy_RPTW.gather(-1, self.cells_RPTG // self.task.policy.vocabulary))


def _rows(value_RPTG: Tensor) -> Tensor:
    """[R, P, T, G] as one row a response, run by run and group by group."""
    return value_RPTG.transpose(2, 3).flatten(0, 2)


def log_score_norms(prompts_RPE: Tensor, cells_RPTG: Tensor, log_RPTWV: Tensor) -> Tensor:
    """log ‖∇ log π(y)‖² by response: tokens touch parameters of their own, U once and B by the embedding, so
    ‖∇ log π(y)‖² = (1 + ‖e‖²)·Σ_t ‖1_v − π(·|w)‖²."""
    chance_RPTWV = log_RPTWV.exp()
    squared_RPTW = chance_RPTWV.square().sum(-1)
    own_RPTG = at_cells(chance_RPTWV, cells_RPTG)
    missed_RPTG = 1 - 2 * own_RPTG + squared_RPTW.gather(-1, cells_RPTG // log_RPTWV.shape[-1])
    return ((1 + prompts_RPE.square().sum(-1))[:, :, None] * missed_RPTG.sum(2)).log().flatten()
