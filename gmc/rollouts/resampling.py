"""Groups that teach nothing: which they are, which prompts are asked in their place, and the account of what was set aside.

A group whose responses all have one reward has advantage zero under every group-relative rule. DAPO (arXiv 2503.14476, its
"dynamic sampling") asks further prompts in place of such groups; here `rollout.resample_equal` says how many a batch.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from gmc.store.checkpoints import CURE
from gmc.store.records import checked
from gmc.store.shards.groups import sampled_length
from gmc.store.shards.rollout import Rollout, SetAside


@dataclass(frozen=True)
class Made:
    """A launch batch. rows: its P·G rollouts, ordered by group then sample; set_aside: the groups sampled besides, each of
    which had equal rewards and gave its place to another prompt or got none."""

    rows: list[Rollout]
    set_aside: tuple[SetAside, ...] = ()


def is_equal(group: Sequence[Rollout]) -> bool:
    """Whether all responses of a group have the same reward."""
    return len({row.reward for row in group}) == 1


def account_of(group: Sequence[Rollout]) -> SetAside:
    """What is kept of a group that is set aside."""
    return SetAside(group[0].problem_id, group[0].reward, sum(sampled_length(row) for row in group))


def further_problems(batch: int, asked: Sequence[int], count: int, total: int, seed: int) -> list[int]:
    """The problems that launch batch `batch` may ask in place of equal groups, in order: at most `count` that it has not asked.

    Drawn without replacement from all `total` problems but those in `asked`; a pure function of its arguments. There are fewer
    than `count` where the set holds no more.
    """
    wanted = min(total, count + len(set(asked)))
    drawn = random.Random(f"further problems/{seed}/{batch}").sample(range(total), wanted)
    return [index for index in drawn if index not in asked][:count]


@dataclass
class SetAsideAccount:
    """What was set aside so far: groups, the sum of their rewards, tokens sampled for them."""

    groups: int = 0
    reward: float = 0.0
    tokens: int = 0

    @classmethod
    def parse(cls, state: Any) -> "SetAsideAccount":
        """The account that a checkpoint holds. Raises `DataError` for what is none."""
        return checked(TypeAdapter(cls), state, "the checkpoint's account of groups set aside", CURE)

    def add(self, set_aside: Iterable[SetAside]) -> None:
        """Count the groups that one batch set aside."""
        for group in set_aside:
            self.groups += 1
            self.reward += group.reward
            self.tokens += group.tokens

    def metrics(self) -> dict[str, float]:
        """As an update logs it; nothing before the first one. A mean reward of 1 says too easy, 0 too hard."""
        if not self.groups:
            return {}
        return {
            "rollouts/groups_set_aside_so_far": float(self.groups),
            "rollouts/set_aside_reward_mean_so_far": self.reward / self.groups,
            "rollouts/set_aside_tokens_so_far": float(self.tokens),
        }
