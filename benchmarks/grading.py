"""Answers graded per second: plain numbers, and MATH-500 golds against their own solutions.

    python benchmarks/grading.py [--data FOLDER]

FOLDER holds `math500.jsonl` (fields `answer` and `solution`); without it only plain numbers are measured. Every figure is the
median of five interleaved rounds, after one round that is not counted. Repeated answers are not remembered between rounds.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from gmc.grading import Grader

ROUNDS = 5


def plain_numbers(count: int) -> list[tuple[str, str]]:
    """Golds and short worked responses, every second one wrong."""
    work = "We add {first} and 7.\n{first} + 7 = {sum}.\nThe result is $\\boxed{{{given}}}$."
    return [(str(n), work.format(first=n - 7, sum=n, given=n + n % 2)) for n in range(count)]


def symbolic_pairs() -> list[tuple[str, str]]:
    """Pairs that only the symbolic tier can tell; all are different, so nothing is looked up."""
    return [(f"\\sqrt{{{4 * n}}}+x", f"\\boxed{{x+2\\sqrt{{{n}}}}}") for n in range(2, 152)]


def rate(pairs: list[tuple[str, str]], grader: Grader) -> float:
    """Answers per second of wall-clock time."""
    start = time.perf_counter()
    grader.grade_many(pairs)
    return len(pairs) / (time.perf_counter() - start)


def main() -> None:
    """Measure and print one line a kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with math500.jsonl")
    folder = parser.parse_args().data
    kinds = {"plain numbers": plain_numbers(4000), "symbolic tier, one new pair each": symbolic_pairs()}
    if folder is not None:
        lines = (folder / "math500.jsonl").read_text("utf-8").splitlines()
        kinds["MATH-500 golds against their solutions"] = [(row["answer"], row["solution"]) for row in map(json.loads, lines)]
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    pool = Grader().pool
    for _ in range(ROUNDS + 1):
        for name, pairs in kinds.items():
            rates[name].append(rate(pairs, Grader(pool=pool)))
    pool.close()
    for name, values in rates.items():
        print(f"{name:<40} {statistics.median(values[1:]):8.0f} answers/s  (worst {min(values[1:]):.0f})")


if __name__ == "__main__":
    main()
