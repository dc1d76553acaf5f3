"""A log-linear Markov policy: the next id from the previous one and from a prompt embedding. Many runs side by side.

Logits at token t after id w under the prompt e are U[t, w] + e·B[t]; w = V stands for the start. A run's parameters are one row
θ of D = T·(V+1)·V + T·E·V numbers, U first. Shapes: R runs, P prompts, G responses a prompt, T tokens, W = V+1 previous ids,
V ids, E embedding. Everything is float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MarkovPolicy:
    """The sizes of a policy, and what follows from its parameters."""

    vocabulary: int = 4
    tokens: int = 12
    embedding: int = 6

    @property
    def parameters(self) -> int:
        """D."""
        return self.tokens * (self.vocabulary + 1 + self.embedding) * self.vocabulary

    def split(self, theta_RD: Tensor) -> tuple[Tensor, Tensor]:
        """U [R, T, W, V] and B [R, T, E, V], as views."""
        first = self.tokens * (self.vocabulary + 1) * self.vocabulary
        runs = len(theta_RD)
        return (
            theta_RD[:, :first].view(runs, self.tokens, self.vocabulary + 1, self.vocabulary),
            theta_RD[:, first:].view(runs, self.tokens, self.embedding, self.vocabulary),
        )

    def log_table(self, theta_RD: Tensor, prompts_RPE: Tensor) -> Tensor:
        """log π(v | w, prompt) at every token, [R, P, T, W, V]."""
        by_previous_RTWV, by_prompt_RTEV = self.split(theta_RD)
        from_prompt_RPTV = torch.einsum("rpe,rtev->rptv", prompts_RPE, by_prompt_RTEV)
        logits_RPTWV = by_previous_RTWV[:, None] + from_prompt_RPTV[:, :, :, None]
        # Over a first axis torch vectorizes; over a last one of four ids it takes six times as long.
        return torch.log_softmax(logits_RPTWV.movedim(-1, 0).contiguous(), dim=0).movedim(0, -1).contiguous()

    def sample(self, log_RPTWV: Tensor, uniforms_RPGT: Tensor) -> Tensor:
        """Responses by inverse transform, as cells_RPTG: w·V + v at each token, w the id before and v the id there."""
        levels_RPTWV = log_RPTWV.exp().cumsum(-1)[..., :-1]
        previous_RPG = torch.full(uniforms_RPGT.shape[:3], self.vocabulary)
        cells = []
        for token in range(self.tokens):
            at_RPGV = previous_RPG[..., None].expand(*previous_RPG.shape, self.vocabulary - 1)
            mine_RPGV = levels_RPTWV[:, :, token].gather(2, at_RPGV)
            chosen_RPG = (uniforms_RPGT[..., token, None] > mine_RPGV).sum(-1)
            cells.append(previous_RPG * self.vocabulary + chosen_RPG)
            previous_RPG = chosen_RPG
        return torch.stack(cells, dim=2)

    def gradient(self, log_RPTWV: Tensor, prompts_RPE: Tensor, cells_RPTG: Tensor, worth_RPTG: Tensor) -> Tensor:
        """Σ worth · ∇ log π over prompts, responses and tokens, one row a run."""
        worth_RPTC = torch.zeros_like(log_RPTWV.flatten(-2)).scatter_add_(-1, cells_RPTG, worth_RPTG)
        worth_RPTWV = worth_RPTC.view_as(log_RPTWV)
        slope_RPTWV = worth_RPTWV - log_RPTWV.exp() * worth_RPTWV.sum(-1, keepdim=True)
        by_prompt_RTEV = torch.einsum("rpe,rptv->rtev", prompts_RPE, slope_RPTWV.sum(3))
        return torch.cat([slope_RPTWV.sum(1).flatten(1), by_prompt_RTEV.flatten(1)], dim=1)


def at_cells(table_RPTWV: Tensor, cells_RPTG: Tensor) -> Tensor:
    """The table's value at each sampled token, [R, P, T, G]."""
    return table_RPTWV.flatten(-2).gather(-1, cells_RPTG)
