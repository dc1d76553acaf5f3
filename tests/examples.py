"""How many examples a property test tries."""

import os
from typing import Any

from hypothesis import settings

INNER_LOOP = 25
WHOLE = "CI" in os.environ
"""Whether this is the whole check (`.ci/run` and the workflows), and not the inner loop."""


def examples(count: int, **more: Any) -> settings:
    """So many in the whole check, and a few of them in the inner loop. more: further settings of hypothesis."""
    return settings(max_examples=count if WHOLE else min(count, INNER_LOOP), **more)
