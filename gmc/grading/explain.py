"""Why a response got its verdict, step by step."""

from dataclasses import dataclass

from gmc.grading.extract import Source, extract
from gmc.grading.gold import gold_problem
from gmc.grading.grade import Grader
from gmc.grading.normalize import normalize
from gmc.grading.shapes import Shape
from gmc.grading.structure import read
from gmc.grading.verdict import Verdict


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
