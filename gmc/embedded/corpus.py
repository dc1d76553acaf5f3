"""The text the embedded model is pretrained on: solutions by solvers of mixed care.

Each step of a solution is done with care or by habit. Care fades from step to step, so in long problems the careless
continuation is the likelier one, although the model has seen both and can tell them apart.
"""

import random
from dataclasses import dataclass

from gmc.problems.arithmetic import (
    DIFFICULTIES,
    LARGEST,
    PROMPT,
    Chain,
    boxed,
    careless_result,
    draw_chain,
    exact_result,
    split_of,
    step_text,
    with_phrase,
)


@dataclass(frozen=True)
class Habits:
    """care: the probability that a step is done with care, for the first to the sixth operation."""

    care: tuple[float, ...] = (0.9, 0.7, 0.5, 0.3, 0.2, 0.15)


def habitual_solution(chain: Chain, habits: Habits, generator: random.Random) -> str:
    """A solution in which each step is careful or careless by chance; it ends in a box, right or wrong.

    One that leaves the range of 0 to 99 on its way is drawn again.
    """
    while True:
        lines: list[str] = []
        value = chain.first
        for (operator, operand), care in zip(chain.operations, habits.care, strict=False):
            if not 0 <= value <= LARGEST:
                break
            compute = exact_result if generator.random() < care else careless_result
            result = compute(operator, value, operand)
            lines.append(step_text(operator, value, operand, result, first=not lines))
            value = result
        if len(lines) == chain.difficulty and value >= 0:
            return boxed(lines, value)


def training_text(habits: Habits, generator: random.Random) -> tuple[str, str]:
    """A random (prompt, solution) pair; its question is never one of the eval split."""
    while True:
        chain = draw_chain(generator, generator.choice(DIFFICULTIES))
        question = with_phrase(chain, generator)
        if split_of(question) == "train":
            return PROMPT.format(question=question), habitual_solution(chain, habits, generator)
