"""Back-pressure: how far generation may run ahead of training."""

from gmc.store.files import read_jsonl
from gmc.store.run_directory import RunDirectory


def batches_used(run: RunDirectory) -> int:
    """Batches that training has used, by its own record; in live mode one an update."""
    return len(read_jsonl(run.used))


def launch_limit(used: int, max_ahead: int) -> int:
    """Batches that may exist, used ones included: numbers 0 … limit−1 may be launched.

    Numbers are given out in order and once, so a bound on the number bounds batches waiting and in work, however many
    followers there are and however they race. After a trainer's crash `used` falls back to its checkpoint, and so does this.

    >>> launch_limit(0, 4), launch_limit(10, 1)
    (4, 11)
    """
    return used + max_ahead
