"""A curve in one line of text."""

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*#@"


def stretches(values: Sequence[float], width: int) -> list[float]:
    """The means of at most `width` stretches of the values, none longer than another by more than one."""
    cells = min(width, len(values))
    bounds = [len(values) * cell // cells for cell in range(cells + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]


def sparkline(values: Sequence[float], width: int, *, unicode: bool = True) -> str:
    """At most `width` characters from the lowest to the highest value; each stands for the mean of its stretch of values."""
    if not values or width < 1:
        return ""
    means = stretches(values, width)
    low, span = min(means), max(means) - min(means)
    marks = BLOCKS if unicode else ASCII
    return "".join(marks[round((mean - low) / span * (len(marks) - 1)) if span else 0] for mean in means)


def curve_text(values: Sequence[float], width: int, *, digits: int = 3, unicode: bool = True) -> str:
    """A sparkline, and the lowest and the highest of all values, however wide it is: "▁▃▅█ 0.312–0.870"; empty without."""
    if not values:
        return ""
    low, high = (f"{end(values):.{digits}f}" for end in (min, max))
    return f"{sparkline(values, width, unicode=unicode)} {low}{'–' if unicode else ' to '}{high}"


def can_draw(encoding: str | None) -> bool:
    """Whether a stream of this encoding takes the block characters."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
