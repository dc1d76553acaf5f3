"""The table of benchmarks, the problems behind a name, and how each is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from gmc.errors import UsageError
from gmc.evaluation.majority import answer_key
from gmc.evaluation.plan import choose_template, make_task
from gmc.evaluation.request import Request
from gmc.evaluation.spec import EvalSpec, Task
from gmc.problems.benchmarks import BENCHMARKS, SUITES, Benchmark, file_benchmark, load_benchmark, select_benchmarks
from gmc.problems.templates import get_template
from gmc.resolving.resolve import resolve_settings

pytestmark = pytest.mark.unit


def save(path: Path, count: int, *, copies: int = 1) -> Path:
    rows = [{"problem": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(count)] * copies
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


def task(benchmark: Benchmark, *, flags: dict[str, Any] | None = None, trained: dict[str, Any] | None = None) -> Task:
    settings = resolve_settings(flags={**(flags or {}), **(trained or {})})
    return make_task(benchmark, settings, Request(trained=trained is not None))


def test_table_is_complete() -> None:
    names = {"math500", "aime24", "aime25", "amc23", "amc24", "minerva", "olympiadbench", "gsm8k", "arithmetic"}
    assert set(BENCHMARKS) == names
    for benchmark in BENCHMARKS.values():
        assert get_template(benchmark.template_id)
        assert benchmark.source or benchmark.files
        assert (benchmark.content_hash is None) == (benchmark.count is None)
    assert BENCHMARKS["aime24"].samples >= 16
    assert BENCHMARKS["math500"].samples >= 4


def test_names_and_suites_select_each_benchmark_once() -> None:
    assert [b.name for b in select_benchmarks(["aime24", "math500", "aime24"])] == ["aime24", "math500"]
    six, seven = (select_benchmarks([name]) for name in ("paper-six", "gac-seven"))
    assert (len(six), len(seven)) == (6, 7)
    assert len(select_benchmarks(["paper-six", "gac-seven"])) == 7
    assert "reconstruction" in SUITES["paper-six"].note
    with pytest.raises(UsageError, match=r"math5000: unknown; did you mean math500\? Benchmarks are math500.*paper-six"):
        select_benchmarks(["math5000"])


def test_arithmetic_is_what_it_was() -> None:
    assert load_benchmark(BENCHMARKS["arithmetic"], None).content_hash == BENCHMARKS["arithmetic"].content_hash


def test_part_of_a_benchmark_does_not_pass_for_it(tmp_path: Path) -> None:
    save(tmp_path / "math500.jsonl", 134)
    with pytest.raises(UsageError, match=r"math500 has 500 problems.*gives 134.*--problems"):
        load_benchmark(BENCHMARKS["math500"], tmp_path)


def test_benchmark_stored_many_times_is_used_once(tmp_path: Path) -> None:
    save(tmp_path / "aime_2024.json", 30, copies=32)
    problems = load_benchmark(BENCHMARKS["aime24"], tmp_path)
    assert len(problems) == 30
    assert "930 duplicate rows removed, 30 problems left" in problems.notes


def test_missing_file_and_unknown_hub_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file for minerva"):
        load_benchmark(BENCHMARKS["minerva"], tmp_path)
    with pytest.raises(UsageError, match=r"amc24\.jsonl.*--bench-data"):
        load_benchmark(BENCHMARKS["amc24"], None)
    save(tmp_path / "amc24.csv", 1).write_text("problem,answer\nq,1\n")
    assert len(load_benchmark(BENCHMARKS["amc24"], tmp_path)) == 1


def test_file_as_benchmark_is_named_after_it_and_has_no_duplicates(tmp_path: Path) -> None:
    benchmark = file_benchmark(str(save(tmp_path / "my test.jsonl", 3, copies=2)))
    assert benchmark.name == "my-test"
    assert len(load_benchmark(benchmark, None)) == 3


def test_evaluation_never_inherits_training_sampling() -> None:
    flags = {"rollout.temperature": 0.3, "rollout.max_tokens": 7, "rollout.group_size": 5}
    spec = task(BENCHMARKS["arithmetic"], flags=flags, trained=flags).spec
    assert (spec.temperature, spec.top_p, spec.max_tokens, spec.samples) == (1.0, 1.0, 64, 4)


def test_limit_is_noted_and_not_compared_with_the_known_hash() -> None:
    limited = task(BENCHMARKS["arithmetic"], flags={"eval.limit": 7})
    assert len(limited.problems) == 7
    assert limited.problems.notes == ("only the first 7 of 500 problems",)
    assert limited.benchmark.content_hash is None
    assert limited.responses == 7 * 5
    assert task(BENCHMARKS["arithmetic"], flags={"eval.limit": 500}).problems.notes == ()


def test_overlap_with_training_problems_is_counted(tmp_path: Path) -> None:
    training, evaluation = save(tmp_path / "train.jsonl", 4), save(tmp_path / "test.jsonl", 9)
    benchmark = file_benchmark(str(evaluation))
    notes = task(benchmark, trained={"problems.source": str(training)}).problems.notes
    assert len(notes) == 1
    assert notes[0].startswith("4 of 9 problems are also training problems")
    training.unlink()
    assert (
        "overlap with the training problems not checked"
        in task(benchmark, trained={"problems.source": str(training)}).problems.notes[0]
    )
    assert task(BENCHMARKS["arithmetic"], trained={}).problems.notes == ()


@pytest.mark.parametrize(
    ("benchmark", "trained", "template_id"),
    [
        ("arithmetic", None, "arithmetic-v1"),
        ("math500", None, "math-two-shot-v1"),
        ("math500", {"problems.source": "x/y", "problems.template": "chat-v1"}, "chat-v1"),
        ("math500", {"problems.source": "x/y"}, "math-two-shot-v1"),
        ("math500", {"problems.source": "arithmetic"}, "math-two-shot-v1"),
        ("arithmetic", {"problems.source": "x/y", "problems.template": "boxed-v1"}, "arithmetic-v1"),
        ("arithmetic", {"problems.source": "arithmetic"}, "arithmetic-v1"),
    ],
)
def test_policy_is_asked_as_it_was_trained(benchmark: str, trained: dict[str, Any] | None, template_id: str) -> None:
    settings = resolve_settings(flags={"model.source": "some/model", **(trained or {})})
    assert choose_template(BENCHMARKS[benchmark], settings, trained=trained is not None) == template_id


@pytest.mark.parametrize("benchmark", ["arithmetic", "math500"])
@pytest.mark.parametrize("trained", [True, False])
def test_the_embedded_model_is_asked_as_it_knows(benchmark: str, trained: bool) -> None:
    own_file = resolve_settings(flags={"problems.source": "x/y"})
    assert choose_template(BENCHMARKS[benchmark], own_file, trained=trained) == "arithmetic-v1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0, "greedy": False}, "nothing to evaluate"),
        ({"samples": -1}, "nothing to evaluate"),
        ({"samples": 4, "temperature": 0.0}, "every sample would be the same"),
        ({"samples": 4, "pass_k": (1, 5)}, "--pass-k 5"),
        ({"samples": 0, "pass_k": (1,)}, "--pass-k 1"),
        ({"samples": 4, "pass_k": (0,)}, "--pass-k 0"),
    ],
)
def test_combinations_without_a_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EvalSpec(**{"benchmark": "b", "template_id": "boxed-v1", **changes})


def test_greedy_alone_is_allowed() -> None:
    assert EvalSpec("b", "boxed-v1", 0, temperature=0.0).chunk_problems() == 256


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("27.0", "27"),
        ("1/2", "0.5"),
        (r"\frac{1}{2}", "0.5"),
        ("1,234", "1234"),
        (r"\dfrac12", r"\frac{1}{2}"),
        ("$x+1$", "x + 1"),
    ],
)
def test_one_vote(one: str, other: str) -> None:
    assert answer_key(one) == answer_key(other)


@pytest.mark.parametrize(("one", "other"), [("27", "28"), ("x+1", "x-1"), ("1,2", "12"), ("50\\%", "50"), ("A", "B")])
def test_two_votes(one: str, other: str) -> None:
    assert answer_key(one) != answer_key(other)


def test_no_answer_has_no_vote() -> None:
    assert answer_key(None) is None
