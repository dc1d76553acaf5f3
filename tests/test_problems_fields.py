"""Which field is the question, which the gold, and what becomes of the values found in the wild."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmc.errors import DataError
from gmc.problems.base import ProblemSet
from gmc.problems.fields import RefusedRowError, gold_text
from gmc.problems.load import load_problems
from gmc.problems.readers import parse_json

pytestmark = pytest.mark.unit


def load(directory: Path, *rows: dict[str, Any] | str, **options: Any) -> ProblemSet:
    path = directory / "problems.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines), "utf-8")
    return load_problems(str(path), **options)


def gold(directory: Path, row: dict[str, Any] | str, **options: Any) -> str:
    (problem,) = load(directory, row, **options).problems
    return problem.answer


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "q", "answer": "81"},
        {"Problem": "q", "Answer": 81},
        {"QUESTION": "q", "ANSWER": "81"},
        {"question": "q", "final_answer": ["81"]},
        {"problem": "q", "question": "q", "answer": "81"},
        {"input": "q", "target": 81},
        {"prompt": "q", "reward_model": {"style": "rule", "ground_truth": "81"}},
        {"problem": "q", "solution": r"so $x=\boxed{81}$."},
        {"problem": "q", "solution": "", "answer": "81"},
        {"problem": "q", "solution": r"so \boxed{81}", "answer": None},
        {"prompt": [{"role": "user", "content": "q"}], "ground_truth": "81"},
        {"messages": [{"role": "user", "content": "q"}], "gold": "81"},
    ],
)
def test_known_names_are_found(tmp_path: Path, row: dict[str, Any]) -> None:
    (problem,) = load(tmp_path, row).problems
    assert (problem.question, problem.answer) == ("q", "81")


def test_named_fields_go_before_known_ones(tmp_path: Path) -> None:
    row = {"problem": "old", "text": "q", "answer": "1", "info": {"Value": "81"}}
    (problem,) = load(tmp_path, row, question_field="TEXT", answer_field="info.value").problems
    assert (problem.question, problem.answer) == ("q", "81")


def test_passage_stands_before_its_question(tmp_path: Path) -> None:
    row = {"Body": "There are 3 cats and 4 dogs", "Question": "How many animals are there?", "Answer": 7.0}
    (problem,) = load(tmp_path, row).problems
    assert problem.question == "There are 3 cats and 4 dogs. How many animals are there?"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("81", "81"),
        ("0", "0"),
        ("27.0", "27.0"),
        ("-1.50", "-1.50"),
        ("1e5", "1e5"),
        ('"047"', "047"),
        ('"1e5"', "1e5"),
        ('"123456789012345678"', "123456789012345678"),
        ("1000000000000000000000000000000", "1000000000000000000000000000000"),
        (r'["$\\frac{3}{5}$"]', r"\frac{3}{5}"),
        ("\"['81']\"", "81"),
        ('"[\\"81\\"]"', "81"),
        ('"[0,1]"', "[0,1]"),
        ('"$317,$6$"', "317,6"),
        (r'"$\\sqrt{3}-1$,$\\frac{2}{7}$"', r"\sqrt{3}-1,\frac{2}{7}"),
        (r'"\\$18.90"', r"\$18.90"),
        (r'"10-2\\sqrt{5}"', r"10-2\sqrt{5}"),
        ('"4e33\\n"', "4e33"),
        ('"She sells 16 - 3 = 13 eggs.\\n#### 1,234"', "1,234"),
        ('"so 5 * 2 = 10\\n#### -18"', "-18"),
        (r'"\\boxed{\\frac{1}{2}}"', r"\frac{1}{2}"),
        (r'"\\text{even}"', r"\text{even}"),
        ('"Evelyn"', "Evelyn"),
    ],
)
def test_gold_is_text_as_written(tmp_path: Path, written: str, text: str) -> None:
    assert gold(tmp_path, f'{{"problem":"q","answer":{written}}}') == text


def test_several_answers_are_joined_only_where_the_row_says_so(tmp_path: Path) -> None:
    assert gold(tmp_path, {"question": "q", "final_answer": ["1", "$2$"], "is_multiple_answer": True}) == "1,2"
    with pytest.raises(DataError, match="list of 2 values"):
        load(tmp_path, {"question": "q", "final_answer": ["1", "2"]})


def test_last_box_of_a_solution_counts(tmp_path: Path) -> None:
    solution = r"First $\boxed{3}$ is the step we need; after more work the result is $\boxed{\frac{1}{\sqrt{2}}}$."
    assert gold(tmp_path, {"problem": "q", "solution": solution}) == r"\frac{1}{\sqrt{2}}"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"problem": "q", "solution": "We add and get 12."}, "no \\boxed{}"),
        (
            {
                "problem": "q",
                "answer": "Two pumps fill the tank twice as fast. Each needs 288 days alone, so it takes 144 days.",
            },
            "explanation",
        ),
        (
            {
                "problem": "q",
                "answer": "the men and the women together need as many days as one of them would need for half "
                "of the whole work so it takes 144 days",
            },
            "explanation",
        ),
        ({"problem": "q", "answer": True}, "truth value"),
        ({"problem": "q", "answer": {"value": 1}}, "type dict"),
        ({"problem": "q", "answer": "['81', oops]"}, "list written as text"),
        ({"problem": "q", "answer": "$$"}, "empty"),
        ({"problem": "q", "answer": r"\frac{1}{2"}, "do not close"),
        ({"problem": "q", "answer": "nan"}, "missing answer"),
        ({"problem": " ", "answer": "1"}, "no question"),
        ({"problem": None, "answer": "1"}, "no question"),
        (
            {
                "prompt": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "c"},
                ],
                "answer": "1",
            },
            "only user turn",
        ),
        ({"prompt": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "answer": "1"}, "system turn"),
        ({"prompt": ["a"], "answer": "1"}, "bare list"),
        ({"prompt": [], "answer": "1"}, "no question"),
    ],
)
def test_unusable_rows_are_refused_with_a_reason_and_counted(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    good = {"problem": "fine", "answer": "1"}
    loaded = load(tmp_path, good, row, row)
    assert [problem.question for problem in loaded.problems] == ["fine"]
    assert loaded.notes[0] == "3 rows read, 1 kept"
    assert loaded.notes[1].startswith("2 rows refused: ")
    assert reason in loaded.notes[1]
    assert "line 2, line 3" in loaded.notes[1]
    with pytest.raises(DataError) as caught:
        load(tmp_path, row)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("row", "wanted", "present"),
    [({"answer": "4", "note": ""}, "question", "answer, note"), ({"problem": "q", "hint": ""}, "answer", "problem, hint")],
)
def test_missing_field_names_row_field_and_keys(tmp_path: Path, row: dict[str, Any], wanted: str, present: str) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, {"problem": "q", "answer": "1"}, row)
    for part in ("problems.jsonl, line 2", f"no {wanted} field", present, f"--{wanted}-field"):
        assert part in str(caught.value)
    with pytest.raises(DataError, match="question field \\(nope\\)"):
        load(tmp_path, {"problem": "q", "answer": "1"}, question_field="nope")


def test_keys_may_differ_from_row_to_row(tmp_path: Path) -> None:
    rows = [{"problem": "a", "answer": "1", "note": None}] * 3 + [
        {"answer": "2", "note": "late text", "question": "b", "x": {}}
    ]
    assert [problem.answer for problem in load(tmp_path, *rows).problems][-1] == "2"


def test_late_text_in_a_null_column_loads(tmp_path: Path) -> None:
    rows = [{"problem": f"q{i}", "answer": str(i), "note": None if i < 5000 else "text"} for i in range(5001)]
    assert len(load(tmp_path, *rows)) == 5001


def test_stated_tolerance_is_reported_as_unused(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"question": "q", "final_answer": ["4.2"], "unit": "%", "error": "1e-1"})
    assert loaded.problems[0].answer == "4.2"
    assert "tolerance" in loaded.notes[0]
    assert "not used" in loaded.notes[0]


def test_gold_that_stands_boxed_in_its_question_is_reported(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"problem": r"Show that it is $\boxed{7}$.", "answer": "7"})
    assert "already holds the boxed answer" in loaded.notes[0]


def test_parquet_values_keep_their_kind(tmp_path: Path) -> None:
    table = pa.table(
        {
            "problem": ["a", "b", "c", "d"],
            "answer": pa.array([27.0, None, float("nan"), -1.5]),
            "final_answer": pa.array([None, ["1"], ["2"], None], pa.list_(pa.string())),
            "idx": pa.array([1, None, 3, 4]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    loaded = load_problems(str(tmp_path / "a.parquet"))
    assert [problem.answer for problem in loaded.problems] == ["27.0", "1", "2", "-1.5"]


def test_parquet_integers_of_any_width(tmp_path: Path) -> None:
    pq.write_table(pa.table({"problem": ["a"], "answer": pa.array([2**63 - 1], pa.int64())}), tmp_path / "a.parquet")
    assert load_problems(str(tmp_path / "a.parquet")).problems[0].answer == "9223372036854775807"


def test_csv_values_are_never_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("problem,answer\na,047\nb,1e5\nc,123456789012345678\nd,True\ne,1.50\n")
    answers = [problem.answer for problem in load_problems(str(tmp_path / "a.csv")).problems]
    assert answers == ["047", "1e5", "123456789012345678", "True", "1.50"]


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_of_json_keep_every_digit(number: float) -> None:
    written = json.dumps(number)
    assert gold_text(parse_json(f'{{"answer": {written}}}', "here")["answer"]) == written


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=40), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_gives_a_nonempty_gold_or_a_reason(value: Any) -> None:
    reason = text = ""
    try:
        text = gold_text(value)
    except RefusedRowError as error:
        reason = str(error)
    assert bool(text.strip()) != bool(reason)
