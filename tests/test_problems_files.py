"""Public data sets in the shapes they are found in: every row loads."""

import os
from pathlib import Path

import pytest

from gmc.problems.benchmarks import BENCHMARKS, load_benchmark
from gmc.problems.checks import find_overlap
from gmc.problems.load import load_problems

DATA = Path(os.environ.get("GMC_BENCH_DATA", ""))

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif("GMC_BENCH_DATA" not in os.environ, reason="GMC_BENCH_DATA is not set: no benchmark files"),
]

# Rows of each file; a last row without a newline counts.
COUNTS = {
    "math500": 500,
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "minerva_math": 272,
    "olympiadbench": 675,
    "math_train_like": 4500,
    "gsm8k": 1319,
    "svamp": 1000,
    "mawps_singleop": 562,
    "mawps_addsub": 395,
    "mawps_multiarith": 600,
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_row_becomes_a_problem(name: str) -> None:
    problems = load_problems(str(DATA / f"{name}.jsonl"))
    assert len(problems) == COUNTS[name]
    assert not any("refused" in note for note in problems.notes)
    assert len({problem.problem_id for problem in problems.problems}) == len(problems)
    assert all(problem.question and problem.answer for problem in problems.problems)


@pytest.mark.parametrize("name", [name for name, benchmark in BENCHMARKS.items() if benchmark.count and name != "arithmetic"])
def test_benchmark_has_its_count_and_content(name: str) -> None:
    benchmark = BENCHMARKS[name]
    problems = load_benchmark(benchmark, DATA)
    assert len(problems) == benchmark.count
    assert problems.content_hash == benchmark.content_hash


def test_training_problems_leave_the_benchmark_out() -> None:
    training, evaluation = (load_problems(str(DATA / f"{name}.jsonl")) for name in ("math_train_like", "math500"))
    assert find_overlap(training, evaluation) == []
    assert len(find_overlap(evaluation, evaluation)) == 500
