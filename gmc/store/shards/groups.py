"""The groups of an update: P lists of G rollouts."""

from collections.abc import Sequence

from gmc.store.shards.rollout import Rollout

Groups = Sequence[Sequence[Rollout]]


def token_ids(groups: Groups) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Prompts_P and responses_PG of an update's groups."""
    return [group[0].prompt_token_ids for group in groups], [[row.response_token_ids for row in group] for group in groups]


def in_groups(rows: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rows of one batch, ordered by group, as its P groups."""
    groups_PG: list[list[Rollout]] = [[] for _ in range(rows[-1].group + 1)]
    for row in rows:
        groups_PG[row.group].append(row)
    return groups_PG
