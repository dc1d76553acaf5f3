"""What a toy run learns: hit a hidden target with few errors. The expected reward is exact, by dynamic programming.

Shapes: R runs, M prompts, T tokens, W previous ids, V ids, E embedding, K errors so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gmc.lab.toy.policy import MarkovPolicy

PROMPTS = 32
MOST_ERRORS = 2
"""A response with at most so many ids off the target has reward 1, any other 0."""

BASE_VALUE = 0.3
"""J of the initial policy, reached by scaling the teacher's parameters."""

LARGEST_SCALE, BISECTIONS = 20.0, 30


@dataclass(frozen=True)
class Task:
    """One task a run, drawn from the run's seed. start_RD: version 0; prompts_RME: embeddings; target_RMT: ids to hit."""

    policy: MarkovPolicy
    start_RD: Tensor
    prompts_RME: Tensor
    target_RMT: Tensor

    def repeat(self, times: int) -> "Task":
        """Every run `times` times in a row."""
        rows = (self.start_RD, self.prompts_RME, self.target_RMT)
        return Task(self.policy, *(row.repeat_interleave(times, dim=0) for row in rows))

    def rewards(self, cells_RPTG: Tensor, prompt_RP: Tensor) -> Tensor:
        """Rewards [R, P, G] of sampled responses to these prompts."""
        target_RPT = self.target_RMT[torch.arange(len(prompt_RP))[:, None], prompt_RP]
        errors_RPG = (cells_RPTG % self.policy.vocabulary != target_RPT[..., None]).sum(2)
        return (errors_RPG <= MOST_ERRORS).double()

    def value(self, theta_RD: Tensor) -> Tensor:
        """J of every run: the mean over all prompts of the chance of a reward. Differentiable in θ."""
        chance_RMTWV = self.policy.log_table(theta_RD, self.prompts_RME).exp()
        runs, prompts = self.prompts_RME.shape[:2]
        ids = self.policy.vocabulary
        state_RMWK = chance_RMTWV.new_zeros(runs, prompts, ids + 1, MOST_ERRORS + 1)
        state_RMWK[:, :, ids, 0] = 1
        for token in range(self.policy.tokens):
            flow_RMVK = torch.einsum("rmwk,rmwv->rmvk", state_RMWK, chance_RMTWV[:, :, token])
            hit_RMV1 = (torch.arange(ids) == self.target_RMT[:, :, token, None])[..., None]
            missed_RMVK = torch.nn.functional.pad(flow_RMVK[..., :-1], (1, 0))  # one error more; beyond the last, no reward
            next_RMVK = torch.where(hit_RMV1, flow_RMVK, missed_RMVK)
            state_RMWK = torch.nn.functional.pad(next_RMVK, (0, 0, 0, 1))  # nothing follows the start again
        return state_RMWK.sum((2, 3)).mean(1)


def make_tasks(seeds: Sequence[int]) -> Task:
    """One task a seed: a random teacher, its most likely response to each prompt as the target, and the teacher scaled down
    until J is `BASE_VALUE` as the initial policy."""
    policy = MarkovPolicy()
    teachers, prompts = [], []
    for seed in seeds:
        draw = np.random.default_rng(1000 + seed)
        by_previous = draw.normal(size=(policy.tokens, policy.vocabulary + 1, policy.vocabulary))
        by_prompt = draw.normal(size=(policy.tokens, policy.embedding, policy.vocabulary))
        teachers.append(np.concatenate([by_previous.ravel(), by_prompt.ravel()]))
        prompts.append(draw.normal(size=(PROMPTS, policy.embedding)) / policy.embedding**0.5 * 1.5)
    teacher_RD, prompts_RME = torch.from_numpy(np.stack(teachers)), torch.from_numpy(np.stack(prompts))
    task = Task(policy, teacher_RD, prompts_RME, _greedy(policy, teacher_RD, prompts_RME))
    low_R, high_R = torch.zeros(len(seeds), dtype=torch.float64), torch.full((len(seeds),), LARGEST_SCALE, dtype=torch.float64)
    for _ in range(BISECTIONS):
        middle_R = (low_R + high_R) / 2
        below_R = task.value(middle_R[:, None] * teacher_RD) < BASE_VALUE
        low_R, high_R = torch.where(below_R, middle_R, low_R), torch.where(below_R, high_R, middle_R)
    return Task(policy, high_R[:, None] * teacher_RD, prompts_RME, task.target_RMT)


def _greedy(policy: MarkovPolicy, theta_RD: Tensor, prompts_RME: Tensor) -> Tensor:
    """The response of the most likely ids, one after the other, [R, M, T]."""
    log_RMTWV = policy.log_table(theta_RD, prompts_RME)
    previous_RM = torch.full(prompts_RME.shape[:2], policy.vocabulary)
    columns = []
    for token in range(policy.tokens):
        at_RM1V = previous_RM[..., None, None].expand(*previous_RM.shape, 1, policy.vocabulary)
        previous_RM = log_RMTWV[:, :, token].gather(2, at_RM1V)[:, :, 0].argmax(-1)
        columns.append(previous_RM)
    return torch.stack(columns, dim=-1)
