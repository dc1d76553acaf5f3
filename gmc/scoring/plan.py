"""Which responses go through the network together: a pure function of lengths and a token budget.

Behavior and current log-probs use the same plan, and nothing that is later skipped changes it. The same weights therefore
give the same bits both times, and ρ is exactly 1 at delay 0.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from gmc.errors import UsageError


@dataclass(frozen=True)
class Piece:
    """Responses of one group that share one copy of its prompt in a micro-batch.

    group: index of the group (0..P-1). samples: indices within the group (0..G-1), ascending, none of them empty.
    """

    group: int
    samples: tuple[int, ...]


@dataclass(frozen=True)
class MicroBatch:
    """Pieces that go through the network in one pass. tokens: input tokens, each shared prompt counted once."""

    pieces: tuple[Piece, ...]
    tokens: int


Masks = Sequence[Sequence[Sequence[bool] | None]] | None
"""For each response, P × G, which of its tokens the model sampled, None where it sampled all; the others are context."""


def sampled_places(length: int, mask: Sequence[bool] | None) -> list[int]:
    """Where in a response of so many tokens those stand that are scored."""
    return [*range(length)] if mask is None else [place for place, own in enumerate(mask) if own]


def without_tails(
    responses_PG: Sequence[Sequence[Sequence[int]]], masks_PG: Masks
) -> tuple[Sequence[Sequence[Sequence[int]]], Masks]:
    """The responses up to their last sampled token, and their masks: nothing that is scored depends on what comes after.

    No masks at all when every token was sampled, so that such a batch is scored as ever. Raises `UsageError` for a mask of
    another length than its response.
    """
    if masks_PG is None or not any(mask is not None and not all(mask) for masks_G in masks_PG for mask in masks_G):
        return responses_PG, None
    responses: list[list[Sequence[int]]] = []
    masks: list[list[Sequence[bool] | None]] = []
    for responses_G, masks_G in zip(responses_PG, masks_PG, strict=True):
        responses.append([])
        masks.append([])
        for response, mask in zip(responses_G, masks_G, strict=True):
            if mask is not None and len(mask) != len(response):
                raise UsageError(f"a mask of {len(mask)} values for a response of {len(response)} tokens: one each is needed.")
            stop = max(sampled_places(len(response), mask), default=-1) + 1
            responses[-1].append(response[:stop])
            masks[-1].append(None if mask is None else mask[:stop])
    return responses, masks


def input_tokens(response_length: int) -> int:
    """Positions a response adds to the input: its last token is predicted but never read."""
    return max(response_length - 1, 0)


def make_plan(
    prompt_lengths_P: Sequence[int],
    response_lengths_PG: Sequence[Sequence[int]],
    token_budget: int,
    *,
    share_prompts: bool = True,
    parts: Sequence[Piece] | None = None,
) -> list[MicroBatch]:
    """Split a batch into micro-batches of at most `token_budget` input tokens, in order, whole groups where they fit.

    A group larger than the budget is split by samples and its prompt is repeated in each part; one response that alone is
    larger forms a micro-batch of its own. Empty responses appear nowhere. With `share_prompts=False` every response
    carries its own prompt. parts: the responses to plan for, by group; None for all. Raises `UsageError` for a budget below 1.
    """
    if token_budget < 1:
        raise UsageError(f"token_budget = {token_budget}: a micro-batch needs room for at least 1 token.")
    plan: list[MicroBatch] = []
    pieces: list[Piece] = []
    used = 0
    every = (Piece(group, tuple(range(len(lengths_G)))) for group, lengths_G in enumerate(response_lengths_PG))
    planned = every if parts is None else parts
    for piece, tokens in _pieces(planned, prompt_lengths_P, response_lengths_PG, token_budget, share_prompts):
        if pieces and used + tokens > token_budget:
            plan.append(MicroBatch(tuple(pieces), used))
            pieces, used = [], 0
        pieces.append(piece)
        used += tokens
    if pieces:
        plan.append(MicroBatch(tuple(pieces), used))
    return plan


def _pieces(
    parts: Iterable[Piece],
    prompt_lengths_P: Sequence[int],
    response_lengths_PG: Sequence[Sequence[int]],
    token_budget: int,
    share_prompts: bool,
) -> list[tuple[Piece, int]]:
    pieces: list[tuple[Piece, int]] = []
    for part in parts:
        group, prompt_length = part.group, prompt_lengths_P[part.group]
        samples: list[int] = []
        used = prompt_length
        for sample in part.samples:
            length = response_lengths_PG[group][sample]
            if length == 0:
                continue
            full = used + input_tokens(length) > token_budget
            if samples and (full or not share_prompts):
                pieces.append((Piece(group, tuple(samples)), used))
                samples, used = [], prompt_length
            samples.append(sample)
            used += input_tokens(length)
        if samples:
            pieces.append((Piece(group, tuple(samples)), used))
    return pieces


def reduce(
    micro_batch: MicroBatch,
    prompts_P: Sequence[Sequence[int]],
    responses_PG: Sequence[Sequence[Sequence[int]]],
    active_B: Sequence[bool],
) -> MicroBatch | None:
    """The micro-batch without its inactive responses, and without the prompts nobody reads then; None when none is left."""
    pieces: list[Piece] = []
    tokens = 0
    for piece in micro_batch.pieces:
        responses_G = responses_PG[piece.group]
        samples = tuple(sample for sample in piece.samples if active_B[piece.group * len(responses_G) + sample])
        if samples:
            pieces.append(Piece(piece.group, samples))
            tokens += len(prompts_P[piece.group]) + sum(input_tokens(len(responses_G[sample])) for sample in samples)
    return MicroBatch(tuple(pieces), tokens) if pieces else None


def largest_first(plan: Sequence[MicroBatch]) -> list[int]:
    """Numbers of the micro-batches in the order of their backward passes: the one of most tokens (the first of several), then
    the others as planned. So memory reaches its highest at once, and the graph that saves most is there first."""
    largest = max(range(len(plan)), key=lambda index: plan[index].tokens, default=None)
    return sorted(range(len(plan)), key=lambda index: index != largest)


def linked(groups: Sequence[Set[int]], order: Sequence[int]) -> list[list[int]]:
    """The micro-batches of `order` in parts that have no group in common, each in that order: a group waits for all of it.

    groups: those of each micro-batch.
    """
    parts: list[tuple[list[int], set[int]]] = []
    for index in order:
        met = [part for part in parts if part[1] & groups[index]]
        joined = [member for members, _ in met for member in members]
        parts = [part for part in parts if not part[1] & groups[index]]
        parts.append(([*joined, index], set(groups[index]).union(*(own for _, own in met))))
    place = {index: position for position, index in enumerate(order)}
    return sorted((sorted(members, key=place.__getitem__) for members, _ in parts), key=lambda members: place[members[0]])
