"""The built-in arithmetic problems: right answers, separate splits, the same problems for the same seed."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmc.errors import UsageError
from gmc.problems.arithmetic import (
    PROMPT,
    arithmetic_problems,
    draw_chain,
    split_of,
    with_phrase,
    worked_problems,
    worked_solution,
)


def value_of(question: str) -> int:
    """The value of the question's LaTeX by Python's own precedence, sharing nothing with the generator."""
    expression = re.search(r"\$(.*)\$", question)
    assert expression is not None
    return int(eval(expression[1].replace(r"\cdot", "*"), {"__builtins__": {}}))


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_are_the_values_of_the_expressions(split: str, seed: int) -> None:
    problems = worked_problems(split, 600, seed)  # type: ignore[arg-type]
    assert {worked.chain.difficulty for worked in problems} == {1, 2, 3, 4, 5, 6}
    for worked in problems:
        assert int(worked.problem.answer) == value_of(worked.problem.question)
        assert 0 <= int(worked.problem.answer) <= 99


def test_solutions_box_the_gold_answer_and_each_line_holds() -> None:
    for worked in worked_problems("train", 600, 3):
        *lines, last = worked.solution.split("\n")
        assert last == rf"\boxed{{{worked.problem.answer}}}"
        assert len(lines) == (worked.chain.difficulty if worked.chain.difficulty > 1 else 0)
        value = ""
        for line in lines:
            left, right = line.replace(r"\cdot ", "*").split("=")
            assert eval(left if left[0].isdigit() else value + left) == int(right), line
            value = right


@settings(max_examples=200, deadline=None)
@given(st.integers(), st.integers(1, 6))
def test_any_question_belongs_to_exactly_one_split(seed: int, difficulty: int) -> None:
    generator = random.Random(seed)
    question = with_phrase(draw_chain(generator, difficulty), generator)
    assert split_of(question) == split_of(str(question))
    assert split_of(question) in ("train", "eval")


def test_splits_are_disjoint_across_seeds() -> None:
    train = {problem.question for seed in range(5) for problem in arithmetic_problems("train", 1500, seed)}
    held_out = {problem.question for seed in range(5) for problem in arithmetic_problems("eval", 1500, seed)}
    assert train.isdisjoint(held_out)
    assert all(split_of(question) == "train" for question in train)
    assert all(split_of(question) == "eval" for question in held_out)


def test_the_seed_decides_the_problems() -> None:
    first = arithmetic_problems("train", 200, 5)
    assert first == arithmetic_problems("train", 200, 5)
    assert first == arithmetic_problems("train", 300, 5)[:200], "a longer list begins with the shorter one"
    assert first != arithmetic_problems("train", 200, 6)


def test_ids_and_questions_are_unique() -> None:
    problems = arithmetic_problems("eval", 4000)
    assert len({problem.problem_id for problem in problems}) == len({problem.question for problem in problems}) == 4000


def test_kind_names_the_difficulty_and_solutions_span_one_to_eight() -> None:
    lengths: dict[str, list[int]] = {}
    for worked in worked_problems("train", 600):
        lengths.setdefault(worked.problem.kind, []).append(len(worked.solution))
    assert len(lengths) == 6
    assert max(map(max, lengths.values())) < 80
    means = [sum(values) / len(values) for _, values in sorted(lengths.items())]
    assert means == sorted(means)


def test_worked_solution_computes_the_product_before_the_sum() -> None:
    chains = [worked.chain for worked in worked_problems("train", 200) if worked.chain.product is not None]
    assert chains
    for chain in chains:
        assert chain.product is not None
        assert worked_solution(chain).startswith(rf"{chain.product[0]}\cdot {chain.product[1]}=")


def test_prompt_holds_the_question() -> None:
    assert PROMPT.format(question="What is $1+1$?") == "Problem: What is $1+1$?\nSolution:\n"


@pytest.mark.parametrize(("split", "count"), [("test", 10), ("train", 0), ("train", -1)])
def test_a_wrong_request_is_named(split: str, count: int) -> None:
    with pytest.raises(UsageError, match=re.escape(split) if count > 0 else str(count)):
        arithmetic_problems(split, count)  # type: ignore[arg-type]
