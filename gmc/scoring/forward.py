"""Forward and backward over the micro-batches of an update: once each where a rule's weights need no other micro-batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gmc.parameters.base import Parameters
from gmc.scoring.dealing import Steps, filler, lengths
from gmc.scoring.passes import Pass, Prompts, Responses, TokenScores
from gmc.scoring.plan import Masks, MicroBatch, largest_first, linked
from gmc.scoring.room import Room

Weigh = Callable[[Tensor, Tensor], Tensor]
"""(logp_BT, known_B) to grad_BT: ∂loss/∂logp of every row in `known_B`, whose log-probs are final. Other rows' values are
arbitrary on both sides."""


@dataclass(frozen=True)
class Work:
    """The micro-batches of a batch, and how this rank's are run. texts: prompts_P, responses_PG, masks_PG.

    mask_BT: True at sampled tokens, which alone have columns.
    """

    active_pass: Pass
    parameters: Parameters
    texts: tuple[Prompts, Responses, Masks]
    steps: Steps
    mask_BT: Tensor

    @property
    def plan(self) -> Sequence[MicroBatch]:
        """This rank's micro-batches."""
        return self.steps.plan

    def run(self, micro_batch: MicroBatch, *, graph: bool, entropies: bool = False) -> TokenScores:
        """Scores of one micro-batch. To be called within `active_pass.active()`.

        For `NULL` something small runs, of which nothing is returned and only zeros go back.
        """
        if not micro_batch.pieces:
            scored = self.run(filler(*lengths(*self.texts[:2])), graph=graph, entropies=entropies)
            return TokenScores(*(tensor[:0] for tensor in scored.tensors()))
        with torch.set_grad_enabled(graph):
            return TokenScores(*self.parameters.run(self.body(micro_batch, entropies)))

    def body(self, micro_batch: MicroBatch, entropies: bool = False) -> Callable[[], tuple[Tensor, ...]]:
        """What the parameters run: the pass over one micro-batch."""
        return lambda: self.active_pass.run(micro_batch, *self.texts, entropies=entropies).tensors()

    def reduced(self, index: int, grad_BT: Tensor) -> tuple[MicroBatch, bool] | None:
        """The micro-batch without the rows whose gradient is all zero, and whether it is better run anew; None when no row is
        left, on any rank if they go in lockstep."""
        prompts_P, responses_PG, _ = self.texts
        return self.steps.reduced(index, prompts_P, responses_PG, (grad_BT != 0).any(dim=1).tolist())

    def parts(self) -> list[list[int]]:
        """The micro-batches in the order in which they go forward and back, in parts that have no group in common."""
        return linked([self.steps.groups(index) for index in range(len(self.plan))], largest_first(self.plan))

    def rows(self, indices: Iterable[int]) -> Tensor:
        """Which rows belong to the groups of these micro-batches, of all ranks' if they go in lockstep: rows_B."""
        _, responses_PG, _ = self.texts
        groups = sorted(set[int]().union(*(self.steps.groups(index) for index in indices)))
        rows_PG = torch.zeros(len(responses_PG), len(responses_PG[0]), dtype=torch.bool)
        rows_PG[groups] = True
        return rows_PG.reshape(-1).to(self.mask_BT.device)


@dataclass
class Forward:
    """Current log-probs of an update batch, and the way back.

    logp_BT: detached, float32, 0 at padding. kept: graphs by micro-batch; versions: of the parameters that they belong to.
    whole: micro-batches that are run with all their rows when at least two thirds of them have a gradient, since their graph
    may be there; others are run with the rows that have one. So the gradient has the same bits whether a graph was kept or is
    made anew. passed_BT: the gradient that went back in passing already, None when nothing did.
    """

    logp_BT: Tensor
    work: Work
    whole: frozenset[int]
    versions: tuple[int, ...]
    kept: dict[int, TokenScores] = field(default_factory=dict)
    passed_BT: Tensor | None = None

    @property
    def mask_BT(self) -> Tensor:
        """True at sampled tokens."""
        return self.work.mask_BT

    def has_passed(self, grad_BT: Tensor) -> bool:
        """Whether the parameters' `.grad` holds the part of exactly this gradient that belongs to this rank's groups."""
        if self.passed_BT is None:
            return False
        own_B1 = self.work.rows(range(len(self.work.plan)))[:, None]
        return torch.equal(self.passed_BT, torch.where(self.mask_BT & own_B1, grad_BT, torch.zeros_like(grad_BT)))

    def backward(self, grad_BT: Tensor) -> None:
        """Accumulate Σ grad · ∂logp/∂θ into the parameters' `.grad`. The first call uses kept graphs, a later one runs anew.

        grad_BT: ∂loss/∂logp_BT; values at padding are ignored. Rows whose gradient is all zero are left out; a micro-batch
        of such rows is not run at all. Among several ranks each adds its own groups' part: the sum over ranks is the gradient.
        """
        grad_BT = torch.where(self.mask_BT, grad_BT, torch.zeros_like(grad_BT))
        if self.work.parameters.versions() != self.versions:
            # Somebody wrote to the weights (swapped in those of an anchor, say): a graph over the old storage must not be used.
            self.kept.clear()
        self._backward([index for part in self.work.parts() for index in part], grad_BT)

    def _backward(self, indices: Sequence[int], grad_BT: Tensor) -> None:
        """Of some micro-batches in the order they were run in: graphs that were kept are the first, and gone before others are
        built."""
        kept, self.kept = self.kept, {}
        for index in indices:
            self._backward_one(index, kept.pop(index, None), grad_BT)

    def _backward_one(self, index: int, scored: TokenScores | None, grad_BT: Tensor) -> None:
        work, whole = self.work, self.work.plan[index]
        decided = work.reduced(index, grad_BT)
        if decided is None:
            return
        reduced, cheaper = decided
        few = index not in self.whole or cheaper
        with work.active_pass.active():
            if scored is None or few:
                scored = None  # frees the graph first
                scored = work.run(reduced if few else whole, graph=True)
            torch.autograd.backward(scored.logp_R, grad_BT[scored.rows_R, scored.columns_R])

    def run(self, indices: Sequence[int], keep: Callable[[int], bool]) -> None:
        """Score some micro-batches, and keep the graphs of those that `keep` says to."""
        for index in indices:
            graph = keep(index)
            with self.work.active_pass.active():
                scored = self.work.run(self.work.plan[index], graph=graph)
            self.logp_BT[scored.rows_R, scored.columns_R] = scored.logp_R.detach()
            if graph:
                self.kept[index] = scored

    def run_once(self, weigh: Weigh | None, room: Callable[[], Room] | None) -> None:
        """Score every micro-batch and send its gradient back at once, so that no graph outlives its micro-batch.

        Micro-batches that share a group wait for each other: as many of their graphs are kept as `room` allows, the others
        are run again. Without `weigh` all of them wait, and `backward` is called afterwards with the gradient.

        In lockstep a part is what all ranks run in the same steps, and its log-probs are exchanged before they are weighed: so
        every rank knows which steps go back, and the parts of a group come together.
        """
        mask_BT = self.mask_BT
        parts = self.work.parts()
        if len(parts) < 2 or weigh is None:
            self._run_within([index for part in parts for index in part], room)
            return
        self.passed_BT = torch.zeros_like(self.logp_BT)
        for part in parts:
            self._run_within(part, room)
            known_B = self.work.rows(part)
            if self.work.parameters.lockstep:
                self._exchange(known_B)
            grad_BT = torch.where(mask_BT & known_B[:, None], weigh(self.logp_BT, known_B), torch.zeros_like(self.logp_BT))
            self._backward(part, grad_BT)
            self.passed_BT += grad_BT

    def _exchange(self, known_B: Tensor) -> None:
        """Put together what the ranks know of some rows."""
        own_BT = self.logp_BT[known_B]
        self.work.parameters.ranks.add([own_BT])
        self.logp_BT[known_B] = own_BT

    def _run_within(self, indices: Sequence[int], room: Callable[[], Room] | None) -> None:
        """Keep the first graph, and then as many as there is room for; no other without `room`."""
        if len(indices) < 2 or room is None:
            self.run(indices, lambda index: index == indices[0])
            return
        measured = room()
        with measured.counting():
            self.run(indices[:1], lambda index: True)
        kept = indices[: measured.fitting([self.work.plan[index].tokens for index in indices])]
        self.run(indices[1:], lambda index: index in kept)
