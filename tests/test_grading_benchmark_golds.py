"""Golds of public benchmarks against their own solutions. Reads the folder named by GMC_BENCH_DATA."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from gmc.grading import Grader, gold_problem

pytestmark = pytest.mark.process


def rows(name: str) -> list[dict[str, str]]:
    folder = os.environ.get("GMC_BENCH_DATA")
    if folder is None:
        pytest.skip("GMC_BENCH_DATA names no folder with benchmark files")
    return [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").read_text("utf-8").splitlines()]


def test_every_math500_gold_is_right_against_its_own_solution() -> None:
    problems = rows("math500")
    with Grader() as grader:
        verdicts = grader.grade_many([(row["answer"], row["solution"]) for row in problems])
    assert [row["answer"] for row, verdict in zip(problems, verdicts, strict=True) if not verdict.correct] == []
    assert len(verdicts) == 500


def test_a_math500_gold_is_wrong_for_the_next_problem() -> None:
    problems = rows("math500")
    golds = [row["answer"] for row in problems]
    pairs = [(gold, f"\\boxed{{{other}}}") for gold, other in pairwise(golds) if gold != other]
    with Grader() as grader:
        verdicts = grader.grade_many(pairs)
    # One neighbor only names the value.
    assert [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct] == [("5", "\\boxed{x=5}")]


def test_gsm8k_and_olympiad_golds_grade() -> None:
    gsm8k = rows("gsm8k")
    olympiad = [str(row["final_answer"][0]) for row in rows("olympiadbench")]
    assert [gold for gold in olympiad if gold_problem(gold)] == []
    with Grader() as grader:
        verdicts = grader.grade_many([(row["answer"].rpartition("####")[2].strip(), row["answer"]) for row in gsm8k])
        assert sum(verdict.correct for verdict in verdicts) == len(gsm8k)
        assert all(verdict.correct for verdict in grader.grade_many([(gold, f"\\boxed{{{gold}}}") for gold in olympiad]))
