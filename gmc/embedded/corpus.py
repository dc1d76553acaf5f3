"""The text the embedded model is pretrained on: solutions by solvers of mixed care.

Each step of a solution is done with care or by habit. The habits are the common ones: forgetting to carry or to borrow, and
reading `a + b * c` from left to right. Care fades from step to step, so in long problems the careless continuation is the
likelier one, although the model has seen both and can tell them apart.
"""

import random
from dataclasses import dataclass

from gmc.problems.arithmetic import DIFFICULTIES, PROMPT, Chain, Operator, apply, draw_chain, split_of, step_text, with_phrase


@dataclass(frozen=True)
class Habits:
    """How likely care is. product: of computing a leading product first; steps: of carrying and borrowing, by step."""

    product: float = 0.5
    steps: tuple[float, ...] = (0.75, 0.65, 0.55, 0.45, 0.35, 0.3)


def careless_result(operator: Operator, left: int, right: int) -> int:
    """One operation on `left` (0 to 99) and a number below 10, with the carry or the borrow forgotten."""
    if not (0 <= left <= 99 and 0 <= right <= 9):
        return apply(operator, left, right)
    tens, units = divmod(left, 10)
    if operator == "*":
        return tens * right * 10 + units * right % 10 if tens else left * right
    return tens * 10 + apply(operator, units, right) % 10


def habitual_solution(chain: Chain, habits: Habits, generator: random.Random) -> str:
    """A solution in which each step is careful or careless by chance; it ends in a box, right or wrong."""
    operations = list(chain.operations)
    lines: list[str] = []
    value = chain.first
    shown: int | None = chain.first
    if chain.product is not None:
        b, c = chain.product
        if generator.random() < habits.product:
            lines.append(step_text("*", b, c, b * c))
        else:
            operations[0:1] = [(operations[0][0], b), ("*", c)]
    for operator, operand in operations:
        care = habits.steps[len(lines)] if len(lines) < len(habits.steps) else habits.steps[-1]
        careful = generator.random() < care
        result = apply(operator, value, operand) if careful else careless_result(operator, value, operand)
        lines.append(step_text(operator, shown, operand, result))
        value, shown = result, None
    steps = "" if chain.difficulty == 1 else "".join(lines)
    return rf"{steps}\boxed{{{value}}}"


def training_text(habits: Habits, generator: random.Random) -> tuple[str, str]:
    """A random (prompt, solution) pair; its question is never one of the eval split."""
    while True:
        chain = draw_chain(generator, generator.choice(DIFFICULTIES))
        question = with_phrase(chain, generator)
        if split_of(question) == "train":
            return PROMPT.format(question=question), habitual_solution(chain, habits, generator)
