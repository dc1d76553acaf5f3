"""How many examples a property test tries, and how many cases of a broad table."""

import os
from collections.abc import Iterable
from typing import Any

from hypothesis import settings

INNER_LOOP = 10
WHOLE = "CI" in os.environ
"""Whether this is the whole check (`.ci/run` and the workflows), and not the inner loop."""


def examples(count: int, **more: Any) -> settings:
    """So many in the whole check, and a few of them in the inner loop. more: further settings of hypothesis."""
    return settings(max_examples=count if WHOLE else min(count, INNER_LOOP), **more)


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """All cases in the whole check, and one of so many in the inner loop.

    A step that divides none of the lengths of a product's factors meets every value of each.
    """
    return list(cases) if WHOLE else list(cases)[::every]
