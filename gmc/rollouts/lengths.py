"""Mean response lengths of all that was generated and of all that was trained on: a gap between the two is a length bias."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class LengthAccount:
    """Tokens and responses counted so far."""

    total: int = 0
    count: int = 0

    def add(self, lengths: Sequence[int]) -> None:
        """Count responses of these lengths, in tokens."""
        self.total += sum(lengths)
        self.count += len(lengths)

    @property
    def mean(self) -> float:
        """Tokens a response; 0 before the first."""
        return self.total / max(1, self.count)
