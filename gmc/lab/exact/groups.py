"""Every group of G out of K responses: as multisets, each with the probability that G independent draws give it.

Shapes: P multisets, G responses a group, K responses.
"""

import itertools
import math

import torch
from torch import Tensor

from gmc.errors import UsageError

MOST_SEQUENCES = 1_000_000


def all_groups_PG(responses: int, group_size: int) -> Tensor:
    """The C(K+G−1, G) multisets of G response indices, each sorted.

    Raises `UsageError` when their responses would be more than `MOST_SEQUENCES`.

    >>> len(all_groups_PG(8, 8)), len(all_groups_PG(4, 32))
    (6435, 6545)
    """
    count = math.comb(responses + group_size - 1, group_size)
    if count * group_size > MOST_SEQUENCES:
        raise UsageError(
            f"{responses} responses in groups of {group_size} make {count:,} groups; take fewer tokens, ids or responses a "
            f"group, so that groups times their size stay below {MOST_SEQUENCES:,}"
        )
    return torch.tensor(list(itertools.combinations_with_replacement(range(responses), group_size)))


def log_probability_P(groups_PG: Tensor, log_mu_K: Tensor) -> Tensor:
    """log of the multinomial probability of each multiset when its G responses are drawn from μ."""
    counts_PK = torch.nn.functional.one_hot(groups_PG, len(log_mu_K)).sum(1).double()
    orders_P = math.lgamma(groups_PG.shape[1] + 1) - torch.lgamma(counts_PK + 1).sum(-1)
    return orders_P + counts_PK @ log_mu_K
