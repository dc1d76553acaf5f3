"""Why a response got its verdict, step by step, in words."""

import re
from dataclasses import dataclass

from gmc.grading.extract import Source, extract
from gmc.grading.grade import Grader, Verdict, gold_problem
from gmc.grading.normalize import normalize
from gmc.grading.shapes import Congruence, Leaf, Matrix, Named, Relation, Sequence, Several, Shape, Union, Words
from gmc.grading.structure import read

_LONG_NUMBER = re.compile(r"\d{41,}")
_LONGEST_TEXT = 300
_WRAPPED = re.compile(r"\\text\{([^{}]*)\}")
_SIGNS = {r"\le": "≤", r"\ge": "≥", r"\ne": "≠", r"\approx": "≈"}


def describe(shape: Shape) -> str:
    """The kind of an answer and its parts in one line: `7`, `set {1, 2}`, `interval (0, 1]`, `equation x = 5`."""
    kind = _kind(shape)
    return f"{kind} {_plain(shape)}" if kind else _plain(shape)


def shortened(text: str) -> str:
    """The text with the inside of long numbers left out, and its end when it is still long: `5555555555…(5000 digits)`."""
    cut = _LONG_NUMBER.sub(lambda match: f"{match[0][:10]}…({len(match[0])} digits)", text)
    return cut if len(cut) <= _LONGEST_TEXT else f"{cut[:_LONGEST_TEXT]}…({len(text)} characters)"


def _kind(shape: Shape) -> str:
    match shape:
        case Leaf():
            return ""
        case Words():
            return "words"
        case Several():
            return "set" if shape.braced else "values in any order:"
        case Sequence():
            if (shape.left, shape.right) == ("(", ")"):
                return "tuple"
            return "interval" if len(shape.items) == 2 else "list"
        case Union():
            return "interval" if len(shape.parts) == 1 else "union"
        case Named():
            return "equation"
        case Relation():
            return "relation"
        case Congruence():
            return "congruence"
        case Matrix():
            return "matrix"


def _plain(shape: Shape) -> str:
    match shape:
        case Leaf(text):
            return text
        case Words(text):
            return _WRAPPED.sub(r"\1", text)
        case Several(items, braced):
            return f"{{{_listed(items)}}}" if braced else _listed(items)
        case Sequence(left, items, right):
            return f"{left}{_listed(items)}{right}"
        case Union(parts, variable):
            joined = " ∪ ".join(_plain(part) for part in parts)
            return f"{joined} of {variable}" if variable else joined
        case Named(name, value):
            return f"{name} = {_plain(value)}"
        case Relation(sides, operators):
            signs = [_SIGNS.get(operator, operator) for operator in operators]
            return sides[0] + "".join(f" {sign} {side}" for sign, side in zip(signs, sides[1:], strict=True))
        case Congruence(name, residue, modulus):
            return f"{name} ≡ {residue} (mod {modulus})".lstrip()
        case Matrix(rows):
            return f"[{'; '.join(_listed(row) for row in rows)}]"


def _listed(items: tuple[Shape, ...]) -> str:
    return ", ".join(_plain(item) for item in items)


@dataclass(frozen=True)
class Explanation:
    """What was extracted, from where, how both answers read, and what decided.

    gold_problem: why the gold cannot be graded, None when it can. The forms of the answer are None when nothing was extracted.
    """

    verdict: Verdict
    source: Source
    gold_problem: str | None
    normalized_gold: str
    normalized_answer: str | None
    gold_shape: Shape
    answer_shape: Shape | None


def explain(gold: str, response: str, *, strict: bool = True) -> Explanation:
    """Grade one response and keep every intermediate form; may start a worker process, and ends it."""
    found = extract(response, strict=strict)
    with Grader(strict=strict) as grader:
        verdict = grader.grade_many([(gold, response)])[0]
    left = normalize(gold)
    right = None if found.text is None else normalize(found.text)
    return Explanation(
        verdict, found.source, gold_problem(gold), left, right, read(left), None if right is None else read(right)
    )
