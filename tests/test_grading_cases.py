"""Cases by kind: what must be right, what must not, with the default (training) mode."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import make_disputed_page
from gmc.grading import Grader

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "grading_cases.jsonl").read_text("utf-8").splitlines()]
KINDS: dict[str, list[dict[str, object]]] = defaultdict(list)
for row in ROWS:
    KINDS[row["kind"]].append(row)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as shared:
        yield shared


@pytest.mark.process
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kind(kind: str, grader: Grader) -> None:
    rows = KINDS[kind]
    verdicts = grader.grade_many([(str(row["gold"]), str(row["response"])) for row in rows])
    wrong = [
        (row["gold"], row["response"], verdict)
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.correct != row["right"]
    ]
    assert not wrong


@pytest.mark.unit
def test_every_kind_has_both_verdicts_somewhere() -> None:
    assert {row["right"] for row in ROWS} == {True, False}
    assert len(ROWS) > 500
    assert len(KINDS) > 30


@pytest.mark.process
@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        # Percent: the sign may be left out or carried through, a bare number is never divided by 100.
        ("35\\%", "0.35", True), ("35\\%", "35", True), ("35", "35\\%", True), ("35", "0.35", False), ("0.35", "35\\%", True),
        ("0.35", "35", False), ("35\\%", "3500", False),
        # Units: left out on one side, converted when both are known, never confused.
        ("5\\text{ cm}", "5", True), ("5\\text{ cm}", "50\\text{ mm}", True), ("5\\text{ cm}", "5\\text{ m}", False),
        ("90\\text{ minutes}", "1\\text{ hour } 30\\text{ minutes}", True), ("1.5\\text{ h}", "90\\text{ min}", True),
        ("60\\text{ mph}", "60\\text{ mi/h}", True), ("5\\text{ cm}^2", "5\\text{ cm}^3", False),
        # Grouped numbers and lists.
        ("100,000", "100000", True), ("123,456,789", "123456789", False), ("1,000,000", "1000000", True),
        ("211,421", "421, 211", True),
        # Rounding: a fraction to four decimals at least; measured values to the shorter mantissa.
        ("\\frac{1}{3}", "0.3333", True), ("\\frac{1}{3}", "0.333", False), ("\\frac{1}{3}", "0.3334", False),
        ("\\pi", "3.14159", False), ("7.353e14", "7.35e14", True), ("7.353e14", "7.36e14", False), ("0.5", "0.50001", False),
        # Bases: the same digits; a base may be left out, never changed.
        ("17_8", "17", True), ("17_8", "15", False), ("17_8", "17_9", False),
        # Equations and names.
        ("x+y=3", "3", False), ("3", "x+y=3", True), ("f(x)=x^2", "f(t)=t^2", True), ("f(x)=x^2", "f(t)=t^3", False),
        ("7", "x=3+4=7", True), ("7", "x=3+4=8", False), ("y=2x", "f(x)=2x", True), ("x=5", "y=5", False),
        # Repeated values.
        ("\\{1,2\\}", "\\{1,2,2\\}", True), ("1,2", "1,2,2", False), ("4", "4, 4", True), ("4", "4, 5", False),
        # Repeating decimals, sums, intervals without points.
        ("\\frac{1}{6}", "0.1\\overline{6}", True), ("55", "\\sum_{k=1}^{10} k", True), ("55", "\\sum_{k=1}^{11} k", False),
        ("x\\ne 2", "(-\\infty,2)\\cup(2,\\infty)", True),
        ("\\mathbb{R}\\setminus\\{1,2\\}", "(-\\infty,1)\\cup(1,2)\\cup(2,\\infty)", True),
        ("\\mathbb{R}\\setminus\\{1\\}", "(-\\infty,\\infty)", False), ("\\sin 30^\\circ", "\\frac12", True),
        ("30^\\circ", "\\frac{\\pi}{6}", True),
    ],
)  # fmt: skip
def test_written_conventions(gold: str, answer: str, right: bool, grader: Grader) -> None:
    assert grader.grade_many([(gold, f"\\boxed{{{answer}}}")])[0].correct is right


@pytest.mark.unit
def test_the_page_of_disputed_answers_is_made_from_their_rows() -> None:
    assert make_disputed_page.PAGE.read_text("utf-8") == make_disputed_page.page(), "python docs/make_disputed_page.py"


@pytest.mark.process
def test_disputed_answers_are_decided_as_the_page_says(grader: Grader) -> None:
    rows = make_disputed_page.rows()
    verdicts = grader.grade_many([(row["gold"], row["response"]) for row in rows])
    assert [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.correct != row["correct"]] == []


@pytest.mark.process
def test_shared_case_file(grader: Grader) -> None:
    folder = os.environ.get("GMC_CASES")
    if folder is None:
        pytest.skip("GMC_CASES names no folder with answer_cases.jsonl")
    rows = [json.loads(line) for line in (Path(folder) / "answer_cases.jsonl").read_text("utf-8").splitlines()]
    verdicts = grader.grade_many([(row["gold"], row["response"]) for row in rows])
    wrong = [row["id"] for row, verdict in zip(rows, verdicts, strict=True) if row["firm"] and verdict.correct != row["right"]]
    listed = {(row["gold"], row["response"]) for row in make_disputed_page.rows()}
    assert {(row["gold"], row["response"]) for row in rows if not row["firm"]} == listed
    # Cases made from public reports hold without exception.
    assert [name for name in wrong if name.startswith("pc-")] == []
    firm = [(row["right"], verdict.correct) for row, verdict in zip(rows, verdicts, strict=True) if row["firm"]]
    assert sum(right == correct for right, correct in firm) >= 0.97 * len(firm)
    assert sum(correct and not right for right, correct in firm) <= 2
