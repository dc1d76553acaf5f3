"""Duplicates, conflicts, overlap, splits, lengths: what a set of problems says about itself."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import character_tokenizer

from gmc.errors import DataError, UsageError
from gmc.problems.base import Problem
from gmc.problems.checks import deduplicate, find_overlap, find_repetitions, normalize_question
from gmc.problems.lengths import drop_long_prompts
from gmc.problems.load import load_problems, problem_set
from gmc.problems.templates import Template, get_template

pytestmark = pytest.mark.unit


def save(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return str(path)


def test_repeated_problems_are_counted_and_can_be_removed(tmp_path: Path) -> None:
    rows = [{"problem": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(3)] * 100
    loaded = load_problems(save(tmp_path / "a.jsonl", rows))
    assert len(loaded) == 300
    assert "297 rows repeating an earlier problem: 3 distinct problems" in loaded.notes
    distinct = deduplicate(loaded)
    assert [problem.question for problem in distinct.problems] == [row["problem"] for row in rows[:3]]
    assert distinct.content_hash != loaded.content_hash
    assert "297 duplicate rows removed, 3 problems left" in distinct.notes
    assert deduplicate(distinct) is distinct


def test_conflicting_golds_are_reported_and_kept(tmp_path: Path) -> None:
    rows = [{"id": "a", "problem": "q?", "answer": "4"}, {"id": "b", "problem": " Q ", "answer": "5"}]
    loaded = load_problems(save(tmp_path / "a.jsonl", rows))
    assert len(deduplicate(loaded)) == 2
    assert loaded.notes == ("1 row with another answer to an earlier question (a and b)",)


def test_golds_of_one_value_are_no_conflict() -> None:
    problems = [Problem("a", "q", "27.0"), Problem("b", "q", "27"), Problem("c", "q", " 27.00 ")]
    found = find_repetitions(problems)
    assert (found.distinct, found.duplicates, found.conflicts) == (1, ("b", "c"), ())


def test_overlap_is_found_despite_spelling() -> None:
    training = problem_set("t", [Problem("1", r"What is $x + 1$ if \left(x = 2\right)?", "3"), Problem("2", "other", "1")])
    evaluation = problem_set("e", [Problem("a", "new", "1"), Problem("b", r"what is x+1 if (x=2)", "3")])
    assert find_overlap(training, evaluation) == ["b"]
    assert find_overlap(evaluation, training) == ["1"]


@given(st.text(max_size=60) | st.text(alphabet="a1 .?\\(,)$left!:\n", max_size=30))
def test_normalization_is_idempotent_and_ignores_spacing(text: str) -> None:
    once = normalize_question(text)
    assert normalize_question(once) == once
    assert normalize_question(f"  {text}\n") == once


def test_words_and_numbers_stay_apart() -> None:
    assert normalize_question("add 1 2 and 3") != normalize_question("add 12 and 3")


def test_own_ids_are_kept_and_others_survive_reordering(tmp_path: Path) -> None:
    rows = [{"unique_id": f"set/{i}", "problem": f"q{i}", "answer": "1"} for i in range(3)]
    assert [problem.problem_id for problem in load_problems(save(tmp_path / "a.jsonl", rows)).problems] == [
        "set/0",
        "set/1",
        "set/2",
    ]
    plain = [{"problem": f"q{i}", "answer": "1"} for i in range(3)]
    forward = load_problems(save(tmp_path / "b.jsonl", plain)).problems
    backward = load_problems(save(tmp_path / "b.jsonl", plain[::-1])).problems
    assert {p.question: p.problem_id for p in forward} == {p.question: p.problem_id for p in backward}
    repeated = [{"id": 1, "problem": "q", "answer": "1"}, {"id": 1, "problem": "q", "answer": "2"}]
    ids = [problem.problem_id for problem in load_problems(save(tmp_path / "c.jsonl", repeated)).problems]
    assert len(set(ids)) == 2


def test_hash_sees_content_and_order(tmp_path: Path) -> None:
    rows = [{"id": i, "problem": f"q{i}", "answer": "1"} for i in range(3)]
    first = load_problems(save(tmp_path / "a.jsonl", rows)).content_hash
    assert load_problems(save(tmp_path / "b.jsonl", rows)).content_hash == first
    assert load_problems(save(tmp_path / "c.jsonl", rows[::-1])).content_hash != first
    rows[1]["answer"] = "2"
    assert load_problems(save(tmp_path / "a.jsonl", rows)).content_hash != first


def test_count_takes_the_first_problems(tmp_path: Path) -> None:
    source = save(tmp_path / "a.jsonl", [{"problem": f"q{i}", "answer": "1"} for i in range(5)])
    assert [problem.question for problem in load_problems(source, count=2).problems] == ["q0", "q1"]
    with pytest.raises(UsageError, match="at least one"):
        load_problems(source, count=0)
    with pytest.raises(UsageError, match="no splits"):
        load_problems(source, split="test")


def test_arithmetic_parts_are_disjoint_and_seeded() -> None:
    train, held_out = load_problems("arithmetic", count=300), load_problems("arithmetic:eval", count=100)
    assert not find_overlap(train, held_out)
    assert load_problems("arithmetic", count=300, seed=1).content_hash != train.content_hash
    assert load_problems("arithmetic", count=300) == train
    with pytest.raises(UsageError, match="train and eval"):
        load_problems("arithmetic:test")


def test_folder_of_splits_loads_as_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "set"
    save(folder / "train.jsonl", [{"problem": "a", "answer": 1}] * 2)
    save(folder / "test.jsonl", [{"problem": "b", "answer": 2}])
    assert load_problems(str(folder)).problems[0].question == "a"
    test = load_problems(str(folder), split="test")
    assert (test.problems[0].answer, test.source) == ("2", f"{folder}:test")
    with pytest.raises(UsageError, match=r"train \(2 rows\), test \(1 rows\)"):
        load_problems(str(folder), split="validation")


@pytest.mark.parametrize(
    ("sizes", "split", "chosen"),
    [
        ({"train": 0, "test": 2}, None, "test"),
        ({"train": 2, "test": 2}, None, "train"),
        ({"train": 2, "test": 2}, "test", "test"),
        ({"easy": 1, "hard": 1}, None, None),
    ],
)
def test_split_of_a_hub_name(
    monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], split: str | None, chosen: str | None
) -> None:
    asked = []

    def fake(name: str, config: str | None) -> datasets.DatasetDict:
        asked.append((name, config))
        schema = {"problem": "q", "answer": "1"}
        return datasets.DatasetDict(
            {key: datasets.Dataset.from_list([schema] * max(size, 1)).select(range(size)) for key, size in sizes.items()}
        )

    monkeypatch.setattr(datasets, "load_dataset", fake)
    if chosen is None:
        with pytest.raises(UsageError, match="choose a split"):
            load_problems("owner/name:part", split=split)
    else:
        loaded = load_problems("owner/name:part", split=split)
        assert loaded.source == f"owner/name:part:{chosen}"
        assert len(loaded) == sizes[chosen]
    assert asked == [("owner/name", "part")]


@pytest.mark.parametrize("error", [ConnectionError("no route"), datasets.exceptions.DatasetNotFoundError("not there")])
def test_unreachable_hub_says_what_to_pass(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(name: str, config: str | None) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"owner/name.*\.jsonl, \.json, \.parquet or \.csv file"):
        load_problems("owner/name")


def test_long_prompts_are_dropped_in_order_and_counted() -> None:
    tokenizer, template = character_tokenizer(), get_template("arithmetic-v1")
    lengths = [5, 40, 7, 60, 6]
    problems = problem_set("set", [Problem(str(i), "a" * length, "1") for i, length in enumerate(lengths)])
    room = len(template.render("", tokenizer)) + 10
    kept = drop_long_prompts(problems, template, tokenizer, room)
    assert [problem.problem_id for problem in kept.problems] == ["0", "2", "4"]
    assert kept.notes == (f"2 of 5 problems dropped: their prompts have more than {room} tokens",)
    assert drop_long_prompts(problems, template, tokenizer, 1000) is problems
    with pytest.raises(DataError, match=r"all 5 prompts.*no template is short enough.*smaller --max-tokens"):
        drop_long_prompts(problems, template, tokenizer, 3)
    shots = get_template("math-two-shot-v1")
    with pytest.raises(DataError, match=r"all 5 prompts .*template math-two-shot-v1.*problems\.template=NAME.*: arithmetic-v1"):
        drop_long_prompts(problems, shots, tokenizer, room)


def test_what_is_added_to_every_question_is_counted_once_where_it_is_too_long_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer, template = character_tokenizer(), get_template("arithmetic-v1")
    encoded: list[str] = []
    encode = Template.encode

    def counted(self: Template, prompt: str, *arguments: object) -> list[int]:
        encoded.append(prompt)
        return encode(self, prompt, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Template, "encode", counted)
    problems = problem_set("set", [Problem(str(i), str(i), "1") for i in range(200)])
    for add in (lambda question: question + "a" * 500, lambda question: "a" * 500 + question):
        encoded.clear()
        with pytest.raises(DataError, match=r"all 200 .*more than 100 tokens.*501 characters of a question of 1"):
            drop_long_prompts(problems, template, tokenizer, 100, lambda problem, add=add: add(problem.question))
        assert sum(len(prompt) > 400 for prompt in encoded) <= 3
    encoded.clear()
    odd = drop_long_prompts(
        problems, template, tokenizer, 100, lambda problem: problem.question + "a" * 500 * (int(problem.question) % 2)
    )
    assert [problem.question for problem in odd.problems] == [str(i) for i in range(0, 200, 2)]
