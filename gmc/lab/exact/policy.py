"""A tabular autoregressive softmax policy whose responses can all be listed.

Shapes: K responses, T tokens, X prefixes, V ids, D = X·V parameters (one logit a prefix and id). Everything is float64.
"""

import itertools
from functools import cached_property

import torch
from torch import Tensor

MOST_RESPONSES = 4096


class TabularPolicy:
    """All policies over V ids and responses of exactly T tokens; a policy is its parameters θ (D numbers).

    Responses are in lexicographic order: response 6 of V = 2, T = 3 is the ids 1, 1, 0.
    """

    def __init__(self, vocabulary: int, tokens: int) -> None:
        self.vocabulary, self.tokens = vocabulary, tokens
        self.prefixes = sum(vocabulary**position for position in range(tokens))
        self.parameters = self.prefixes * vocabulary

    @cached_property
    def responses_KT(self) -> Tensor:
        """The ids of every response."""
        return torch.tensor(list(itertools.product(range(self.vocabulary), repeat=self.tokens)))

    @cached_property
    def prefix_KT(self) -> Tensor:
        """Which prefix each token of each response follows; prefixes of one length stand together, in lexicographic order."""
        columns, first, place_K = [], 0, torch.zeros(len(self.responses_KT), dtype=torch.long)
        for position in range(self.tokens):
            columns.append(first + place_K)
            first += self.vocabulary**position
            place_K = place_K * self.vocabulary + self.responses_KT[:, position]
        return torch.stack(columns, dim=1)

    def log_table_XV(self, theta_D: Tensor) -> Tensor:
        """log π(id | prefix)."""
        return torch.log_softmax(theta_D.reshape(self.prefixes, self.vocabulary), dim=-1)

    def logp_KT(self, theta_D: Tensor) -> Tensor:
        """log π of every token of every response."""
        return self.log_table_XV(theta_D)[self.prefix_KT, self.responses_KT]

    def probabilities_K(self, theta_D: Tensor) -> Tensor:
        """π of every response."""
        return self.logp_KT(theta_D).sum(-1).exp()

    def entropy_KT(self, theta_D: Tensor) -> Tensor:
        """Entropy (nats) of the distribution that each token of each response was drawn from."""
        log_XV = self.log_table_XV(theta_D)
        return -(log_XV.exp() * log_XV).sum(-1)[self.prefix_KT]

    def scores_KTD(self, theta_D: Tensor) -> Tensor:
        """∇ log π of every token of every response."""
        one_KTV = torch.nn.functional.one_hot(self.responses_KT, self.vocabulary).double()
        missed_KTV = one_KTV - self.log_table_XV(theta_D).exp()[self.prefix_KT]
        at_KTX = torch.nn.functional.one_hot(self.prefix_KT, self.prefixes).double()
        return torch.einsum("ktx,ktv->ktxv", at_KTX, missed_KTV).flatten(2)

    def gradient_D(self, theta_D: Tensor, rewards_K: Tensor) -> Tensor:
        """∇J, J the expected reward."""
        return (self.probabilities_K(theta_D) * rewards_K) @ self.scores_KTD(theta_D).sum(1)
