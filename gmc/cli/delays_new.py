"""The package that `gmc delays new` writes: one delay model that works as it stands, and its test."""

from string import Template

from gmc.cli.scaffold import Scaffold
from gmc.delays.registry import GROUP, list_delays

DELAY = Template('''\
"""$name: one line that says how old rollouts are when they are used."""

from collections.abc import Sequence

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.clock import ClockDelay


class $cls(ClockDelay):
    """Groups take D updates, and every tenth batch ten times as long. Replace this delay by your own."""

    name = "$name"
    summary = "the clock; groups take D updates, every tenth batch ten times as long, as scaffolded"
    usage = "$name:D"
    examples = ("$name:3",)

    def __init__(self, duration: float, context: DelayContext) -> None:
        super().__init__(prompts=context.prompts, updates=context.updates)
        self._duration = duration

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "$cls":
        (duration,) = arguments.expect(1)
        return cls(arguments.number(duration, "the duration"), context)

    def durations(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        """Updates from the launch of each group until it is ready; a pure function of these arguments and the run's seed."""
        slow = 10 if batch % 10 == 9 else 1
        return [slow * self._duration for _ in lengths_PG]
''')

TEST = Template("""\
from gmc.delays.base import Arguments, DelayContext
from gmc.testing import check_delay

from $package.delay import $cls


def test_the_contract():
    check_delay($cls, "$name:3")


def test_every_tenth_batch_is_slow():
    arguments = Arguments.of("$name:3", $cls.name, $cls.examples)
    delays = $cls.parse(arguments, DelayContext(prompts=1, group_size=2, seed=0, updates=20))
    taken = [delays.launched(batch, 0, [[5, 7]])[0] for batch in range(10)]
    assert [times.ready_at - times.launched_at for times in taken] == [3.0] * 9 + [30.0]
""")

DELAY_SCAFFOLD = Scaffold(
    kind="delay",
    group=GROUP,
    installed=list_delays,
    module="delay",
    source=DELAY,
    test=TEST,
    title=Template("The delay $name"),
    commands=Template("gmc delays show $name\n    gmc train --delay $name:3"),
    check="check_delay",
    contract="gmc.delays.base.DelayModel",
)
