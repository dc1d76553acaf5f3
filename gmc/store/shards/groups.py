"""The groups of an update: P lists of G rollouts."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from gmc.store.shards.rollout import Rollout

Groups = Sequence[Sequence[Rollout]]
T = TypeVar("T")


class TokenIds(NamedTuple):
    """What a scorer reads of an update's groups. masks_PG: which tokens of each response were sampled, None where all were."""

    prompts_P: list[list[int]]
    responses_PG: list[list[list[int]]]
    masks_PG: list[list[list[bool] | None]]


def token_ids(groups: Groups) -> TokenIds:
    """Prompts_P, responses_PG and masks_PG of an update's groups."""
    return TokenIds(
        [group[0].prompt_token_ids for group in groups],
        [[row.response_token_ids for row in group] for group in groups],
        [[row.response_mask for row in group] for group in groups],
    )


def sampled(row: Rollout, values: Sequence[T]) -> Sequence[T]:
    """Of one value a response token, those of the tokens that the model sampled: all that a rule ever sees."""
    mask = row.response_mask
    return values if mask is None else [value for value, own in zip(values, mask, strict=True) if own]


def expanded(row: Rollout, values: Sequence[float]) -> list[float]:
    """The inverse of `sampled`: one value a response token, 0 where the model sampled none, as a shard's columns have it."""
    mask = row.response_mask
    if mask is None:
        return list(values)
    own = iter(values)
    return [next(own) if is_sampled else 0.0 for is_sampled in mask]


def mask_of(row: Rollout) -> list[bool]:
    """Which tokens of the response the model sampled."""
    return [True] * len(row.response_token_ids) if row.response_mask is None else row.response_mask


def sampled_length(row: Rollout) -> int:
    """The length of a response: how many tokens the model sampled."""
    return len(row.response_token_ids) if row.response_mask is None else sum(row.response_mask)


def versions_of(row: Rollout) -> list[int]:
    """The policy versions that sampled a response, ascending: one, or several where weights changed while it was made."""
    return sorted(set(sampled(row, row.token_versions))) if row.token_versions else [row.policy_version]


def in_groups(rows: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rows of one batch, ordered by group, as its P groups."""
    groups_PG: list[list[Rollout]] = [[] for _ in range(rows[-1].group + 1)]
    for row in rows:
        groups_PG[row.group].append(row)
    return groups_PG


def lengths_of(rows: Sequence[Rollout]) -> list[list[int]]:
    """The lengths (sampled tokens) of one batch's responses, by group."""
    return [[sampled_length(row) for row in group] for group in in_groups(rows)]
