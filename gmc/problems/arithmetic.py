"""Arithmetic problems from a seeded generator, each with a worked solution that ends in `\\boxed{...}`.

A problem of difficulty k applies the first k of six operations to a two-digit number, in a fixed order: add, subtract,
multiply, subtract from 100, divide, square. It is written as LaTeX the way MATH writes it. At every step a common careless
habit (`careless_result`) gives another value than careful work does. So each difficulty asks for one skill more than the one
below it, and only a solution that got everything before right shows whether that skill was there. Length grows with it.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from gmc.errors import UsageError
from gmc.problems.base import Problem

Split = Literal["train", "eval"]
Operator = Literal["+", "-", "*", "from", "/", "^"]

PROMPT = "Problem: {question}\nSolution:\n"
OPERATORS: tuple[Operator, ...] = ("+", "-", "*", "from", "/", "^")
DIFFICULTIES = range(1, len(OPERATORS) + 1)
LARGEST = 99

_PHRASES = (
    "Compute ${}$.",
    "Calculate ${}$.",
    "Evaluate ${}$.",
    "Simplify ${}$.",
    "Find ${}$.",
    "Find the value of ${}$.",
    "What is ${}$?",
    "What is the value of ${}$?",
)
_SYMBOLS: dict[Operator, str] = {"+": "+", "-": "-", "*": r"\cdot ", "/": r"\div ", "^": "^"}
_OPERANDS: dict[Operator, tuple[int, ...]] = {"from": (100,), "^": (2,)}
_DIGITS = tuple(range(2, 10))
_EVAL_SHARE = 8


@dataclass(frozen=True)
class Chain:
    """`first`, then operations applied one after the other; every value before the last lies between 1 and 99."""

    first: int
    operations: tuple[tuple[Operator, int], ...]

    @property
    def difficulty(self) -> int:
        """Number of operations."""
        return len(self.operations)

    @property
    def answer(self) -> int:
        """Value of the expression."""
        value = self.first
        for operator, operand in self.operations:
            value = exact_result(operator, value, operand)
        return value

    def latex(self) -> str:
        """The expression in LaTeX with no more parentheses than it needs."""
        text, before = str(self.first), ""
        for operator, operand in self.operations:
            if (operator in "*/" and before in ("+", "-", "from")) or (operator == "^" and before):
                text = f"({text})"
            text = f"{operand}-{text}" if operator == "from" else f"{text}{_SYMBOLS[operator]}{operand}"
            before = operator
        return text


@dataclass(frozen=True)
class WorkedProblem:
    """A problem with the chain behind it and its correct worked solution."""

    problem: Problem
    chain: Chain
    solution: str


def exact_result(operator: Operator, left: int, right: int) -> int:
    """One operation done with care. A quotient is rounded down (in the problems themselves division leaves no remainder)."""
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "from":
            return right - left
        case "/":
            return left // right
    return int(left**right)


def careless_result(operator: Operator, left: int, right: int) -> int:
    """One operation on `left` (0 to 99) done by a bad habit, digit by digit.

    Sums and products forget the carry, subtraction takes the smaller digit from the larger, subtraction from 100 forgets the
    borrow, division drops the remainder of the tens, and squaring doubles.
    """
    tens, units = divmod(left, 10)
    match operator:
        case "+":
            return tens * 10 + (units + right) % 10
        case "-":
            return tens * 10 + abs(units - right)
        case "*":
            return tens * right * 10 + units * right % 10
        case "from":
            return (10 - tens) * 10 + (10 - units) % 10
        case "/":
            return tens // right * 10 + units // right
    return left * 2


def step_text(operator: Operator, left: int, right: int, result: int, *, first: bool) -> str:
    """One line of a solution. Only the first line, and one that subtracts from 100, repeat the value they start from."""
    if operator == "from":
        return f"{right}-{left}={result}\n"
    return f"{left if first else ''}{_SYMBOLS[operator]}{right}={result}\n"


def worked_solution(chain: Chain) -> str:
    """The correct solution: one line an operation, then the boxed answer. A single operation is answered at once."""
    lines: list[str] = []
    value = chain.first
    for operator, operand in chain.operations:
        result = exact_result(operator, value, operand)
        lines.append(step_text(operator, value, operand, result, first=not lines))
        value = result
    return boxed(lines, value)


def boxed(lines: list[str], answer: int) -> str:
    """A solution's text from its lines and its answer; a single operation shows no line."""
    return "".join(lines if len(lines) > 1 else []) + rf"\boxed{{{answer}}}"


def split_of(question: str) -> Split:
    """The split a question belongs to, decided by its hash alone: no seed can put one question into both."""
    digest = hashlib.sha256(question.encode("utf-8")).digest()
    return "eval" if digest[0] % _EVAL_SHARE == 0 else "train"


def draw_chain(generator: random.Random, difficulty: int) -> Chain:
    """One random chain of the first `difficulty` operations."""
    while True:
        first = value = generator.randint(10, 90)
        operations: list[tuple[Operator, int]] = []
        for operator in OPERATORS[:difficulty]:
            operands = _traps(operator, value)
            if not operands:
                break
            operand = generator.choice(operands)
            operations.append((operator, operand))
            value = exact_result(operator, value, operand)
        else:
            return Chain(first, tuple(operations))


@cache
def _traps(operator: Operator, value: int) -> list[int]:
    """The operands that `operator` may have behind `value`. There are a few hundred such pairs, drawn many thousand times."""
    return [operand for operand in _OPERANDS.get(operator, _DIGITS) if _is_trap(operator, value, operand)]


def _is_trap(operator: Operator, value: int, operand: int) -> bool:
    """Whether the step stays in range and the careless habit goes wrong on it."""
    result = exact_result(operator, value, operand)
    if operator == "/" and value % operand:
        return False
    in_range = 1 <= result <= LARGEST or operator == "^"
    return in_range and result != careless_result(operator, value, operand)


def with_phrase(chain: Chain, generator: random.Random) -> str:
    """The question: the expression in one of a few phrases."""
    return generator.choice(_PHRASES).format(chain.latex())


def worked_problems(split: Split, count: int, seed: int = 0) -> list[WorkedProblem]:
    """`count` distinct problems of one split with their chains and solutions; the same for the same seed.

    Difficulties 1 to 6 take turns by chance. The single-operation problems of a split are few (some thousands); once they
    are used up, harder ones take their place.
    """
    return [WorkedProblem(problem, chain, worked_solution(chain)) for problem, chain in _drawn(split, count, seed)]


@lru_cache(maxsize=8)
def _drawn(split: Split, count: int, seed: int) -> tuple[tuple[Problem, Chain], ...]:
    """As `worked_problems`. Kept, for training, held-out scores and every further command of a notebook ask for the same."""
    if split not in ("train", "eval"):
        raise UsageError(f"arithmetic problems have the splits 'train' and 'eval', not {split!r}")
    if count < 1:
        raise UsageError(f"number of arithmetic problems: {count} is not at least 1")
    generator = random.Random(f"arithmetic {split} {seed}")
    found: dict[str, tuple[Problem, Chain]] = {}
    while len(found) < count:
        chain = draw_chain(generator, generator.choice(DIFFICULTIES))
        question = with_phrase(chain, generator)
        if question in found or split_of(question) != split:
            continue
        problem = Problem(f"arithmetic-{split}-{len(found)}", question, str(chain.answer), f"{chain.difficulty} operations")
        found[question] = problem, chain
    return tuple(found.values())


def arithmetic_problems(split: Split, count: int, seed: int = 0) -> list[Problem]:
    """`count` distinct problems of one split, the same for the same seed; no question is ever in both splits.

    Raises `UsageError` for an unknown split or a count below 1.
    """
    return [problem for problem, _ in _drawn(split, count, seed)]
