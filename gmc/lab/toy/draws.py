"""The chances of toy runs: prompts and uniforms of a launch batch are a pure function of (seed, batch).

So arms that share a seed see the same prompts, and differ in their responses only where their policies do.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gmc.store.logs import GroupRef

PROMPT_STREAM, TOKEN_STREAM = 11, 12


def draw_groups(
    seeds: Sequence[int], groups: Sequence[GroupRef], *, all_prompts: int, prompts: int, group_size: int, tokens: int
) -> tuple[Tensor, Tensor]:
    """Prompt indices [S, P] and uniforms [S, P, G, T] of these groups, for every seed."""
    indices = np.empty((len(seeds), len(groups)), dtype=np.int64)
    uniforms = np.empty((len(seeds), len(groups), group_size, tokens))
    for row, seed in enumerate(seeds):
        for batch in {group.batch for group in groups}:
            places = [place for place, group in enumerate(groups) if group.batch == batch]
            taken = [groups[place].group for place in places]
            chosen_P = np.random.default_rng([PROMPT_STREAM, seed, batch]).integers(0, all_prompts, prompts)
            drawn_PGT = np.random.default_rng([TOKEN_STREAM, seed, batch]).random((prompts, group_size, tokens))
            indices[row, places] = chosen_P[taken]
            uniforms[row, places] = drawn_PGT[taken]
    return torch.from_numpy(indices), torch.from_numpy(uniforms)
