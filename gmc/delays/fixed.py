"""A fixed delay: D batches, first in, first out, between generation and training."""

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.in_order import InOrderDelay


class FixedDelay(InOrderDelay):
    """Update n trains on batch n, which policy version max(0, n − D) generated (arXiv 2610.01896, fixed-delay protocol).

    delay: D, in updates; prompts: P, groups a batch; updates: the planned number, beyond which no batch is made. Version 0
    generates the first D + 1 batches (how the paper fills its queue is not published).
    """

    name = "fixed"
    summary = "first in, first out: update n takes batch n, which version max(0, n − D) generated"
    usage = "D"
    examples = ("0", "256")

    def __init__(self, delay: int, *, prompts: int, updates: int) -> None:
        super().__init__(prompts=prompts, updates=updates)
        self._delay = delay

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "FixedDelay":
        (delay,) = arguments.expect(1)
        return cls(arguments.whole(delay, "the delay"), prompts=context.prompts, updates=context.updates)

    @classmethod
    def less_offline(cls, arguments: Arguments) -> str:
        (text,) = arguments.expect(1)
        delay = arguments.whole(text, "the delay")
        return (
            f"use --delay ramp:{delay}, which reaches the delay {delay} at update {2 * delay} while the policy moves on, and "
            "plan more updates than that"
        )

    def version_of(self, batch: int) -> int:
        return max(0, batch - self._delay)
