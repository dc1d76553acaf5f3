"""Arithmetic problems from a seeded generator, each with a worked solution that ends in `\\boxed{...}`.

A problem is a chain of one to six operations on whole numbers from 0 to 99, written as LaTeX the way MATH writes it. Almost
every operation carries or borrows, and some chains begin with a product that must be computed before the sum around it, so
a careless reader goes wrong. The number of operations is the difficulty, and with it the length of a solution.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import Literal

from gmc.errors import UsageError
from gmc.problems.base import Problem

Split = Literal["train", "eval"]
Operator = Literal["+", "-", "*"]

PROMPT = "Problem: {question}\nSolution:\n"
DIFFICULTIES = (1, 2, 3, 4, 5, 6)
LARGEST = 99

_PHRASES = ("Compute ${}$.", "Evaluate ${}$.", "What is ${}$?", "Find the value of ${}$.")
_SYMBOLS: dict[Operator, str] = {"+": "+", "-": "-", "*": r"\cdot "}
_EVAL_SHARE = 8


@dataclass(frozen=True)
class Chain:
    """An expression: `first`, then operations applied from left to right.

    product: when set to (b, c), the first operation is `first op (b*c)`, written without parentheses; `operations[0]` then
    holds (op, b*c). Every intermediate value lies between 0 and 99.
    """

    first: int
    operations: tuple[tuple[Operator, int], ...]
    product: tuple[int, int] | None = None

    @property
    def difficulty(self) -> int:
        """Number of operations, the leading product included."""
        return len(self.operations) + (self.product is not None)

    @property
    def answer(self) -> int:
        """Value of the expression."""
        value = self.first
        for operator, operand in self.operations:
            value = apply(operator, value, operand)
        return value

    def latex(self) -> str:
        """The expression in LaTeX with no more parentheses than it needs."""
        text, is_sum = str(self.first), False
        for index, (operator, operand) in enumerate(self.operations):
            shown = str(operand)
            if index == 0 and self.product is not None:
                shown = rf"{self.product[0]}\cdot {self.product[1]}"
            if operator == "*" and is_sum:
                text = f"({text})"
            text += _SYMBOLS[operator] + shown
            is_sum = operator != "*"
        return text


@dataclass(frozen=True)
class WorkedProblem:
    """A problem with the chain behind it and its correct worked solution."""

    problem: Problem
    chain: Chain
    solution: str


def apply(operator: Operator, left: int, right: int) -> int:
    """The exact result of one operation."""
    if operator == "+":
        return left + right
    return left - right if operator == "-" else left * right


def step_text(operator: Operator, left: int | None, right: int, result: int) -> str:
    """One line of a solution; `left` is None where the line goes on from the value above it."""
    return f"{'' if left is None else left}{_SYMBOLS[operator]}{right}={result}\n"


def worked_solution(chain: Chain) -> str:
    """The correct solution: one line an operation, then the boxed answer. A single operation is answered at once."""
    if chain.difficulty == 1:
        return rf"\boxed{{{chain.answer}}}"
    lines, value = [], chain.first
    for index, (operator, operand) in enumerate(chain.operations):
        if index == 0 and chain.product is not None:
            lines.append(step_text("*", chain.product[0], chain.product[1], operand))
        result = apply(operator, value, operand)
        lines.append(step_text(operator, value if index == 0 else None, operand, result))
        value = result
    return "".join(lines) + rf"\boxed{{{value}}}"


def split_of(question: str) -> Split:
    """The split a question belongs to, decided by its hash alone: no seed can put one question into both."""
    digest = hashlib.sha256(question.encode("utf-8")).digest()
    return "eval" if digest[0] % _EVAL_SHARE == 0 else "train"


def draw_chain(generator: random.Random, difficulty: int) -> Chain:
    """One random chain with `difficulty` operations; half of those with two or more begin with a product."""
    with_product = difficulty >= 2 and generator.random() < 0.5
    while True:
        chain = _attempt(generator, difficulty, with_product)
        if chain is not None:
            return chain


def with_phrase(chain: Chain, generator: random.Random) -> str:
    """The question: the expression in one of a few phrases."""
    return generator.choice(_PHRASES).format(chain.latex())


def _attempt(generator: random.Random, difficulty: int, with_product: bool) -> Chain | None:
    first, product = generator.randint(2, LARGEST), None
    operations: list[tuple[Operator, int]] = []
    value = first
    if with_product:
        product = (generator.randint(2, 9), generator.randint(2, 9))
        sign: Operator = generator.choice(("+", "-"))
        # The careless reading from left to right must stay in range as well, or the model would never see its like.
        careless = apply(sign, first, product[0]) * product[1]
        operations.append((sign, product[0] * product[1]))
        value = apply(sign, first, product[0] * product[1])
        if not (0 <= value <= LARGEST and 0 <= careless <= LARGEST):
            return None
    while len(operations) + (product is not None) < difficulty:
        step = _draw_operation(generator, value)
        if step is None:
            return None
        operations.append(step)
        value = apply(step[0], value, step[1])
    return Chain(first, tuple(operations), product)


def _draw_operation(generator: random.Random, value: int) -> tuple[Operator, int] | None:
    """An operation that carries or borrows and stays in range, or None where there is none."""
    units, digits = value % 10, range(2, 10)
    choices: list[tuple[Operator, int]] = []
    choices += [("+", digit) for digit in digits if units + digit >= 10 and value + digit <= LARGEST]
    choices += [("-", digit) for digit in digits if units < digit <= value]
    choices += [("*", digit) for digit in digits if units * digit >= 10 and value >= 10 and value * digit <= LARGEST]
    operators = sorted({operator for operator, _ in choices})
    if not operators:
        return None
    operator = generator.choice(operators)
    return generator.choice([step for step in choices if step[0] == operator])


def worked_problems(split: Split, count: int, seed: int = 0) -> list[WorkedProblem]:
    """`count` distinct problems of one split with their chains and solutions; the same for the same seed.

    Difficulties 1 to 6 take turns by chance. The single-operation problems of a split are few (some thousands); once they
    are used up, harder ones take their place.
    """
    if split not in ("train", "eval"):
        raise UsageError(f"arithmetic problems have the splits 'train' and 'eval', not {split!r}")
    if count < 1:
        raise UsageError(f"number of arithmetic problems: {count} is not at least 1")
    generator = random.Random(f"arithmetic {split} {seed}")
    found: dict[str, WorkedProblem] = {}
    while len(found) < count:
        chain = draw_chain(generator, generator.choice(DIFFICULTIES))
        question = with_phrase(chain, generator)
        if question in found or split_of(question) != split:
            continue
        problem = Problem(f"arithmetic-{split}-{len(found)}", question, str(chain.answer), f"{chain.difficulty} operations")
        found[question] = WorkedProblem(problem, chain, worked_solution(chain))
    return list(found.values())


def arithmetic_problems(split: Split, count: int, seed: int = 0) -> list[Problem]:
    """`count` distinct problems of one split, the same for the same seed; no question is ever in both splits.

    Raises `UsageError` for an unknown split or a count below 1.
    """
    return [worked.problem for worked in worked_problems(split, count, seed)]
