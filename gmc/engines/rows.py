"""The samples that are decoded together: which of them still run, what each has said, and which have ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from gmc.engines.stopping import StopStrings, is_end


class Step(NamedTuple):
    """One token of every row: the sample that each row belonged to, the token, and its log-prob."""

    sample_B: Tensor
    token_B: Tensor
    logp_B: Tensor


@dataclass
class Rows:
    """N samples, of which B still run, a row each.

    noise_TN: a uniform number for each token of each sample. seen_BV: ids that a row holds so far, None without a repetition
    penalty. end_ids_E, stop_strings: what ends a sample. said: the tokens that each sample begins with, which a stop string may
    reach back into.
    """

    noise_TN: Tensor
    seen_BV: Tensor | None
    end_ids_E: Tensor
    stop_strings: StopStrings | None
    said: Sequence[Sequence[int]]
    sample_B: Tensor = field(init=False)
    _steps: list[Step] = field(init=False, default_factory=list)
    _responses: list[list[int]] = field(init=False)
    _stopped_N: Tensor = field(init=False)

    def __post_init__(self) -> None:
        samples, device = self.noise_TN.shape[1], self.noise_TN.device
        self.sample_B = torch.arange(samples, device=device)
        self._responses = [list(said) for said in self.said]
        self._stopped_N = torch.zeros(samples, dtype=torch.bool, device=device)

    def append(self, token_B: Tensor, logp_B: Tensor) -> Tensor:
        """Add a token to every row. Returns which rows end with it: ended_B."""
        self._steps.append(Step(self.sample_B, token_B, logp_B))
        ended_B = is_end(token_B, self.end_ids_E)
        if self.stop_strings is not None:
            responses = [self._responses[sample] for sample in self.sample_B.tolist()]
            for response, token in zip(responses, token_B.tolist(), strict=True):
                response.append(token)
            ended_B |= torch.tensor(self.stop_strings.ended(responses), device=ended_B.device)
        if self.seen_BV is not None:
            self.seen_BV[torch.arange(len(token_B), device=token_B.device), token_B] = True
        return ended_B

    def stop(self, ended_B: Tensor, left_B: Tensor) -> Tensor:
        """Mark rows as ended. left_B: these, and those that leave unended. Returns the numbers of the others, ascending."""
        self._stopped_N[self.sample_B[ended_B]] = True
        return (~left_B).nonzero().squeeze(1)

    def reorder(self, order: Tensor) -> None:
        """Leave only the rows of these old numbers, in this order."""
        self.sample_B = self.sample_B[order]
        self.seen_BV = None if self.seen_BV is None else self.seen_BV[order]

    def sampled(self) -> Iterator[tuple[list[int], list[float], bool]]:
        """What each of the N samples has said since the last call, its log-probs, and whether it has ended; one copy to the
        host."""
        columns = (torch.cat(parts).tolist() for parts in zip(*self._steps, strict=True))
        found: list[tuple[list[int], list[float], bool]] = [([], [], stopped) for stopped in self._stopped_N.tolist()]
        for sample, token, logp in zip(*columns, strict=True):
            found[sample][0].append(token)
            found[sample][1].append(min(logp, 0.0))
        self._steps = []
        return iter(found)
