"""The built-in arithmetic problems: right answers, separate splits, the same problems for the same seed."""

import random
import re

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.errors import UsageError
from gmc.problems.arithmetic import (
    PROMPT,
    Operator,
    Split,
    arithmetic_problems,
    careless_result,
    draw_chain,
    split_of,
    with_phrase,
    worked_problems,
)

PYTHON_SIGNS = {r"\cdot ": "*", r"\div ": "/", "^": "**"}


def value_of(latex: str) -> float:
    """The value of a LaTeX expression by Python's own precedence, sharing nothing with the generator."""
    for sign, python in PYTHON_SIGNS.items():
        latex = latex.replace(sign, python)
    return float(eval(latex, {"__builtins__": {}}))


@pytest.mark.unit
@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_are_the_values_of_the_expressions(split: Split, seed: int) -> None:
    problems = worked_problems(split, 600, seed)
    assert {worked.chain.difficulty for worked in problems} == {1, 2, 3, 4, 5, 6}
    for worked in problems:
        expression = re.search(r"\$(.*)\$", worked.problem.question)
        assert expression is not None
        assert value_of(expression[1]) == int(worked.problem.answer), expression[1]


@pytest.mark.train
def test_solutions_box_the_gold_answer_and_each_line_holds() -> None:
    for worked in worked_problems("train", 600, 3):
        *lines, last = worked.solution.split("\n")
        assert last == rf"\boxed{{{worked.problem.answer}}}"
        assert len(lines) == (worked.chain.difficulty if worked.chain.difficulty > 1 else 0)
        value = ""
        for line in lines:
            left, right = line.split("=")
            assert value_of(left if left[0].isdigit() else value + left) == int(right), line
            value = right


@pytest.mark.train
def test_a_careless_step_never_gives_the_right_value() -> None:
    for worked in worked_problems("train", 600, 4):
        value = worked.chain.first
        for line, (operator, operand) in zip(worked.solution.split("\n"), worked.chain.operations, strict=False):
            right = int(re.findall(r"\d+", line)[-1])
            assert careless_result(operator, value, operand) != right
            value = right


@pytest.mark.unit
@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [("+", 27, 8, 25), ("-", 35, 8, 33), ("*", 27, 3, 61), ("from", 87, 100, 23), ("/", 84, 7, 10), ("^", 7, 2, 14)],
)
def test_careless_results(operator: Operator, left: int, right: int, result: int) -> None:
    assert careless_result(operator, left, right) == result


@pytest.mark.train
@examples(200)
@given(st.integers(), st.integers(1, 6))
def test_the_split_of_a_question_depends_on_nothing_but_its_text(seed: int, difficulty: int) -> None:
    generator = random.Random(seed)
    question = with_phrase(draw_chain(generator, difficulty), generator)
    assert split_of(question) in ("train", "eval")
    assert split_of(question) == split_of("".join(list(question)))


@pytest.mark.train
def test_splits_are_disjoint_across_seeds() -> None:
    train = {problem.question for seed in range(3) for problem in arithmetic_problems("train", 1000, seed)}
    held_out = {problem.question for seed in range(3) for problem in arithmetic_problems("eval", 1000, seed)}
    assert train.isdisjoint(held_out)
    assert all(split_of(question) == "train" for question in train)
    assert all(split_of(question) == "eval" for question in held_out)


@pytest.mark.train
def test_the_seed_decides_the_problems() -> None:
    first = arithmetic_problems("train", 200, 5)
    assert first == arithmetic_problems("train", 200, 5)
    assert first == arithmetic_problems("train", 300, 5)[:200], "a longer list begins with the shorter one"
    assert first != arithmetic_problems("train", 200, 6)


@pytest.mark.unit
def test_ids_and_questions_are_unique() -> None:
    problems = arithmetic_problems("eval", 2000)
    assert len({problem.problem_id for problem in problems}) == len({problem.question for problem in problems}) == 2000


@pytest.mark.train
def test_kind_names_the_difficulty_and_length_grows_with_it() -> None:
    lengths: dict[str, list[int]] = {}
    for worked in worked_problems("train", 600):
        lengths.setdefault(worked.problem.kind, []).append(len(worked.solution))
    assert sorted(lengths) == [f"{steps} operations" for steps in range(1, 7)]
    means = [sum(values) / len(values) for _, values in sorted(lengths.items())]
    assert means == sorted(means)


@pytest.mark.unit
def test_prompt_holds_the_question() -> None:
    assert PROMPT.format(question="What is $1+1$?") == "Problem: What is $1+1$?\nSolution:\n"


@pytest.mark.unit
@pytest.mark.parametrize(("split", "count", "named"), [("test", 10, "'test'"), ("train", 0, "0 is not"), ("train", -1, "-1")])
def test_a_wrong_request_is_named(split: str, count: int, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        arithmetic_problems(split, count)  # type: ignore[arg-type]
