"""A curve in one line of text."""

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*#@"


def sparkline(values: Sequence[float], width: int, *, unicode: bool = True) -> str:
    """At most `width` characters from the lowest to the highest value; each stands for the mean of its stretch of values."""
    if not values or width < 1:
        return ""
    cells = min(width, len(values))
    bounds = [len(values) * cell // cells for cell in range(cells + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]
    low, span = min(means), max(means) - min(means)
    marks = BLOCKS if unicode else ASCII
    return "".join(marks[round((mean - low) / span * (len(marks) - 1)) if span else 0] for mean in means)


def can_draw(encoding: str | None) -> bool:
    """Whether a stream of this encoding takes the block characters."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
