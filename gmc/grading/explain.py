"""Why a response got its verdict, step by step, in words."""

import re
from dataclasses import dataclass

from gmc.grading.extract import Source, extract
from gmc.grading.grade import Grader, Verdict, gold_problem
from gmc.grading.normalize import normalize
from gmc.grading.shapes import Shape
from gmc.grading.structure import read

_LONG_NUMBER = re.compile(r"\d{41,}")
_LONGEST_TEXT = 300


def describe(shape: Shape) -> str:
    """The kind of an answer and its parts in one line: `7`, `set {1, 2}`, `interval (0, 1]`, `equation x = 5`."""
    return f"{shape.kind} {shape}" if shape.kind else str(shape)


def shortened(text: str) -> str:
    """The text with the inside of long numbers left out, and its end when it is still long: `5555555555…(5000 digits)`."""
    cut = _LONG_NUMBER.sub(lambda match: f"{match[0][:10]}…({len(match[0])} digits)", text)
    return cut if len(cut) <= _LONGEST_TEXT else f"{cut[:_LONGEST_TEXT]}…({len(text)} characters)"


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


def explain(gold: str, response: str, *, strict: bool = True, thinking: bool = False) -> Explanation:
    """Grade one response and keep every intermediate form; may start a worker process, and ends it.

    thinking: whether the prompt opened a thinking block.
    """
    found = extract(response, strict=strict, thinking=thinking)
    with Grader(strict=strict) as grader:
        verdict = grader.grade_many([(gold, response)], thinking=[thinking])[0]
    left = normalize(gold)
    right = None if found.text is None else normalize(found.text)
    return Explanation(
        verdict, found.source, gold_problem(gold), left, right, read(left), None if right is None else read(right)
    )
