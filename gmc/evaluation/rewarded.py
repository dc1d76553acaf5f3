"""What a score is a mean of: shares of right answers, or rewards that may be any number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gmc.environments.base import Environment
from gmc.errors import UsageError
from gmc.rewards.combined import CombinedReward


@dataclass(frozen=True)
class Rewarded:
    """What responses of an evaluation were rewarded by.

    labels: names of the reward's parts; binary: whether their sum can only be 0 or 1; binary_parts: the same of each part.
    """

    labels: tuple[str, ...] = ("math",)
    binary: bool = True
    binary_parts: tuple[bool, ...] = (True,)

    @classmethod
    def of(cls, reward: CombinedReward, environment: Environment) -> "Rewarded":
        """What a reward says of itself, once its functions have started, in an environment that may change what it gives."""
        binary = reward.is_binary and environment.keeps_rewards
        return cls(tuple(reward.labels), binary, tuple(part.reward.binary for part in reward.parts))

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> "Rewarded":
        """As a result file holds it; files of gmc 0.1 hold none, and were rewarded by math."""
        if record is None:
            return MATH
        return cls(tuple(record["labels"]), record["binary"], tuple(record["binary_parts"]))

    def record(self) -> dict[str, Any]:
        """What `read` takes, as plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def is_binary(self, score: str) -> bool:
        """Whether a score is a share of right answers. score: its name, such as "avg@4" or "avg@4 math" (of a part)."""
        label = score.partition(" ")[2]
        return self.binary if not label else self.binary_parts[self.labels.index(label)]

    def require_binary(self, flag: str) -> None:
        """Raise `UsageError` for a score that only rewards of 0 and 1 have."""
        if not self.binary:
            raise UsageError(
                f"{flag}: needs a reward that is 0 or 1, and {' + '.join(self.labels)} may be any number (binary is false); "
                "leave it out, or evaluate with --reward math"
            )


MATH = Rewarded()
"""The reward of gmc 0.1, and of whoever asks for no other."""


def format_value(value: float, binary: bool, *, sign: str = "") -> str:
    """A score for people: in percent where it is a share, else as it is."""
    return f"{100 * value:{sign}.1f}" if binary else f"{value:{sign}.3f}"
