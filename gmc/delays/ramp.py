"""A delay that grows to its full size while the policy moves on, so that staleness is not training on version 0."""

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.in_order import InOrderDelay


class RampDelay(InOrderDelay):
    """The delay of update n is min(D, ⌊n / R⌋): it grows by one every R updates until it is D, at update R·D.

    Version v serves the updates n with n − ⌊n / R⌋ = v: at most two until then, one each afterwards. delay: D; rise: R, at
    least 2 (with R = 1 every update before D would use version 0, as under the fixed delay); prompts: P,
    groups a batch; updates: the planned number, beyond which no batch is made.
    """

    name = "ramp"
    summary = "first in, first out; the delay grows by one every R updates (2 by default) until it is D"
    usage = "ramp:D[:R]"
    examples = ("ramp:64", "ramp:64:4")

    def __init__(self, delay: int, rise: int, *, prompts: int, updates: int) -> None:
        super().__init__(prompts=prompts, updates=updates)
        self._delay = delay
        self._rise = rise

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "RampDelay":
        delay_text, *rise_text = arguments.expect(1, 2)
        delay = arguments.whole(delay_text, "the delay")
        rise = arguments.whole(rise_text[0], "the updates for each rise") if rise_text else 2
        if rise == 0:
            arguments.refuse("a delay that rises every 0 updates is no delay; R is at least 2")
        if rise == 1:
            arguments.refuse(f"R = 1 is the fixed delay, where version 0 serves the first D + 1 updates: --delay {delay}")
        return cls(delay, rise, prompts=context.prompts, updates=context.updates)

    def version_of(self, batch: int) -> int:
        return batch - min(self._delay, batch // self._rise)
