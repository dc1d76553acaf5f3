"""What a set of problems says twice, contradicts, or shares with another set."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation

from gmc.problems.base import Problem, ProblemSet


def normalize_question(question: str) -> str:
    """A question without what copies of a data set differ in: case, Unicode form, dollar signs, spacing, final punctuation."""
    text, before = question, ""
    while text != before:  # what is removed may leave a new pair behind, as in "x. ."
        before = text
        text = unicodedata.normalize("NFKC", text).casefold()
        text = re.sub(r"\\[()\[\]]|\$|\\left|\\right|\\[,;!]", "", text)
        text = re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", text)
        text = re.sub(r"\s+", " ", text).rstrip(".?!:")
    return text


def normalize_answer(answer: str) -> str:
    """A gold answer for the comparison of copies: numbers by value ("27.0" is "27"), other text without spaces."""
    text = re.sub(r"\s+", "", answer)
    try:
        return str(Decimal(text).normalize(Context(prec=max(28, len(text)), Emax=MAX_EMAX, Emin=MIN_EMIN)))
    except InvalidOperation:
        return text


@dataclass(frozen=True)
class Repetitions:
    """Repeated questions of a set.

    distinct: number of different questions; duplicates: rows that repeat an earlier question with the same answer;
    conflicts: (first row's id, other row's id) pairs of one question with different answers.
    """

    distinct: int
    duplicates: tuple[str, ...]
    conflicts: tuple[tuple[str, str], ...]


def find_repetitions(problems: Sequence[Problem]) -> Repetitions:
    """Duplicates and conflicts among problems, comparing normalized questions and answers."""
    first_answers: dict[str, dict[str, str]] = {}
    duplicates, conflicts = [], []
    for problem in problems:
        answers = first_answers.setdefault(normalize_question(problem.question), {})
        answer = normalize_answer(problem.answer)
        if answer in answers:
            duplicates.append(problem.problem_id)
        else:
            if answers:
                conflicts.append((next(iter(answers.values())), problem.problem_id))
            answers[answer] = problem.problem_id
    return Repetitions(len(first_answers), tuple(duplicates), tuple(conflicts))


def deduplicate(problems: ProblemSet) -> ProblemSet:
    """The set without rows that repeat an earlier question and answer; the order is kept and a note tells how many went."""
    duplicates = set(find_repetitions(problems.problems).duplicates)
    if not duplicates:
        return problems
    kept = [problem for problem in problems.problems if problem.problem_id not in duplicates]
    return problems.keep(kept, f"{len(duplicates)} duplicate rows removed, {len(kept)} problems left")


def find_overlap(training: ProblemSet, evaluation: ProblemSet) -> list[str]:
    """Ids of the evaluation problems whose question (normalized) is also a training question, in evaluation order."""
    seen = {normalize_question(problem.question) for problem in training.problems}
    return [problem.problem_id for problem in evaluation.problems if normalize_question(problem.question) in seen]
