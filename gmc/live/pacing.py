"""Back-pressure: how far generation may run ahead of training."""


def launch_limit(used: int, max_ahead: int) -> int:
    """Batches that may exist, used ones included: numbers 0 … limit−1 may be launched.

    Numbers are given out in order and once, so a bound on the number bounds batches waiting and in work, however many
    followers there are and however they race. After a trainer's crash `used` falls back to its checkpoint, and so does this.

    >>> launch_limit(0, 4), launch_limit(10, 1)
    (4, 11)
    """
    return used + max_ahead
