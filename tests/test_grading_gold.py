"""Golds that cannot be graded, and what happens to responses to them."""

import pytest

from gmc.errors import UsageError
from gmc.grading import Grader, gold_problem, grade_many


@pytest.mark.unit
@pytest.mark.parametrize(
    "gold",
    [
        "42", "-1.0", "\\frac{1}{2}", "\\text{Evelyn}", "Saturday", "$317,$6$", "x \\in [-2,7]", "(2,\\infty)", "[1,2)",
        "0", "\\text{none}",
        "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "3\\text{ h }20\\text{ min}",
        "f(x)=ax+b, where b is an arbitrary integer", "\\{1,2\\}",
    ],
)  # fmt: skip
def test_gradable(gold: str) -> None:
    assert gold_problem(gold) is None


@pytest.mark.unit
@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "empty"), ("  ", "empty"), ("$$", "nothing is left"), ("nan", "missing"), ("None", "missing"), ("?", "missing"),
        ("\\frac{1}{", "do not close"), ("(1,2", "do not close"), ("['81']", "list"), ("\\boxed{5}", "boxed"),
        ("word " * 40, "words"), ("1" * 3000, "longer"),
    ],
)  # fmt: skip
def test_refused(gold: str, reason: str) -> None:
    problem = gold_problem(gold)
    assert problem is not None
    assert reason in problem


@pytest.mark.process
@pytest.mark.parametrize("gold", ["", "$$", "\\frac{1}{", "nan"])
def test_a_gold_that_cannot_be_graded_never_earns_a_reward(gold: str) -> None:
    with Grader() as grader:
        verdicts = grader.grade_many([(gold, f"\\boxed{{{gold}}}"), (gold, gold), (gold, "The answer is nan.")])
        assert not any(verdict.correct for verdict in verdicts)
        assert grader.counts["refused gold"] == 3


@pytest.mark.process
def test_truncated_flags_must_match_the_pairs() -> None:
    with pytest.raises(UsageError, match="1 pairs but 2 truncated flags"):
        grade_many([("1", "1")], truncated=[True, False])


@pytest.mark.process
def test_a_truncated_response_without_an_answer_scores_zero() -> None:
    verdicts = grade_many([("12", "so the answer is 12"), ("12", "\\boxed{12} as"), ("12", "12")], truncated=[True, True, True])
    assert [verdict.status for verdict in verdicts] == ["unparseable", "correct", "unparseable"]


@pytest.mark.process
def test_statuses_and_tiers() -> None:
    verdicts = grade_many(
        [("4", "\\boxed{4}"), ("0.5", "\\boxed{\\frac12}"), ("4", "\\boxed{5}"), ("4", "no idea at all, sorry for that")]
    )
    assert [(verdict.status, verdict.tier) for verdict in verdicts] == [
        ("correct", "text"), ("correct", "number"), ("incorrect", "number"), ("unparseable", "none"),
    ]  # fmt: skip
    assert [verdict.prediction for verdict in verdicts] == ["4", "\\frac12", "5", None]
