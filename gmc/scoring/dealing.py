"""Which responses each rank computes, and in which steps: a pure function of lengths, so every rank knows what all do.

A rank gets groups, or parts of groups where whole ones would leave others idle: each part carries its own copy of the prompt,
and nothing is padded to anything, so a long response costs its own tokens and no more.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from gmc.scoring.plan import MicroBatch, Piece, input_tokens, make_plan, reduce

GAIN = 0.05
"""Groups are cut in two only where that takes this share off the tokens of the ranks that have most."""

NULL = MicroBatch((), 0)
"""The micro-batch of a rank that has nothing to do in a step."""


def deal(prompt_lengths_P: Sequence[int], response_lengths_PG: Sequence[Sequence[int]], ranks: int) -> list[list[Piece]]:
    """The pieces of every rank, in order of groups, so that their tokens are about equal. Empty responses appear nowhere."""
    whole = [
        Piece(group, tuple(sample for sample, length in enumerate(lengths_G) if length))
        for group, lengths_G in enumerate(response_lengths_PG)
    ]
    pieces = [piece for piece in whole if piece.samples]

    def cost(piece: Piece) -> int:
        lengths_G = response_lengths_PG[piece.group]
        return prompt_lengths_P[piece.group] + sum(input_tokens(lengths_G[sample]) for sample in piece.samples)

    dealt = _spread(pieces, [cost(piece) for piece in pieces], ranks)
    while ranks > 1:
        loads = [sum(map(cost, rank)) for rank in dealt]
        crowded = [rank for rank, load in zip(dealt, loads, strict=True) if load > (1 - GAIN) * max(loads)]
        largest = {max((each for each in rank if len(each.samples) > 1), key=cost, default=None) for rank in crowded}
        halves = [half for each in largest if each is not None for half in _halves(each, response_lengths_PG[each.group])]
        if not halves:
            break
        cut = sorted([*(set(pieces) - largest), *halves], key=lambda piece: (piece.group, piece.samples))
        tried = _spread(cut, [cost(piece) for piece in cut], ranks)
        if max(sum(map(cost, rank)) for rank in tried) > (1 - GAIN) * max(loads):
            break
        pieces, dealt = cut, tried
    return dealt


def _spread(pieces: Sequence[Piece], costs: Sequence[int], ranks: int) -> list[list[Piece]]:
    """Each piece, the largest first, to the rank that has least so far."""
    loads = [(0, rank) for rank in range(ranks)]
    dealt: list[list[int]] = [[] for _ in loads]
    for index in sorted(range(len(pieces)), key=lambda index: (-costs[index], index)):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(index)
        heapq.heappush(loads, (load + costs[index], rank))
    return [[pieces[index] for index in sorted(indices)] for indices in dealt]


def _halves(piece: Piece, lengths_G: Sequence[int]) -> list[Piece]:
    """Two pieces of about as many tokens each."""
    loads, halves = [0, 0], (list[int](), list[int]())
    for sample in sorted(piece.samples, key=lambda sample: (-lengths_G[sample], sample)):
        lighter = int(loads[1] < loads[0])
        loads[lighter] += lengths_G[sample]
        halves[lighter].append(sample)
    return [Piece(piece.group, tuple(sorted(half))) for half in halves]


@dataclass(frozen=True)
class Steps:
    """The micro-batches of a batch by rank: plans[rank][step]. own: whose is this process's; cut: whether ranks have parts of
    one group.

    In lockstep all plans are equally long, filled with `NULL`, and decisions are made for all ranks at once; otherwise there is
    one plan, this process's.
    """

    plans: Sequence[Sequence[MicroBatch]]
    own: int
    cut: bool = False

    @property
    def plan(self) -> Sequence[MicroBatch]:
        """This process's micro-batches."""
        return self.plans[self.own]

    def groups(self, step: int) -> set[int]:
        """Those that are in a step, on any rank if they go in lockstep."""
        return {piece.group for plan in self.plans for piece in plan[step].pieces}

    def reduced(
        self,
        step: int,
        prompts_P: Sequence[Sequence[int]],
        responses_PG: Sequence[Sequence[Sequence[int]]],
        active_B: Sequence[bool],
    ) -> tuple[MicroBatch, bool] | None:
        """This rank's micro-batch of a step without its inactive responses, and whether running it anew without them is cheaper
        than going back through all. None when no rank has an active response in it."""
        left = [reduce(plan[step], prompts_P, responses_PG, active_B) or NULL for plan in self.plans]
        most, all_of_it = max(each.tokens for each in left), max(plan[step].tokens for plan in self.plans)
        # A forward pass costs half of a backward pass: running the few rows that matter again can be the cheaper way.
        return (left[self.own], 3 * most < 2 * all_of_it) if any(each.pieces for each in left) else None


def make_steps(
    prompt_lengths_P: Sequence[int],
    response_lengths_PG: Sequence[Sequence[int]],
    token_budget: int,
    *,
    rank: int,
    ranks: int,
    share_prompts: bool,
    lockstep: bool,
) -> Steps:
    """The steps of `rank` among `ranks`. Errors as for `make_plan`.

    In lockstep each rank's largest micro-batch is its first, so that what runs at the same time is of about one size.
    """
    dealt: Sequence[list[Piece] | None] = deal(prompt_lengths_P, response_lengths_PG, ranks) if ranks > 1 else [None]
    groups = [{piece.group for piece in pieces} for pieces in dealt if pieces is not None]
    cut = sum(map(len, groups)) > len(set[int]().union(*groups))
    wanted = range(ranks) if lockstep else [rank]
    plans = [
        make_plan(prompt_lengths_P, response_lengths_PG, token_budget, share_prompts=share_prompts, parts=dealt[each])
        for each in wanted
    ]
    if not lockstep:
        return Steps(plans, 0, cut)
    longest = max(map(len, plans))
    plans = [sorted(plan, key=lambda micro_batch: -micro_batch.tokens) + [NULL] * (longest - len(plan)) for plan in plans]
    return Steps(plans, rank, cut)


def lengths(
    prompts_P: Sequence[Sequence[int]], responses_PG: Sequence[Sequence[Sequence[int]]]
) -> tuple[list[int], list[list[int]]]:
    """Tokens of every prompt and of every response."""
    return list(map(len, prompts_P)), [list(map(len, responses_G)) for responses_G in responses_PG]


def filler(prompt_lengths_P: Sequence[int], response_lengths_PG: Sequence[Sequence[int]]) -> MicroBatch:
    """The least that can be run: the response of the fewest tokens with its prompt. There has to be one that is not empty."""
    tokens, group, sample = min(
        (prompt_lengths_P[group] + input_tokens(length), group, sample)
        for group, lengths_G in enumerate(response_lengths_PG)
        for sample, length in enumerate(lengths_G)
        if length
    )
    return MicroBatch((Piece(group, (sample,)),), tokens)
