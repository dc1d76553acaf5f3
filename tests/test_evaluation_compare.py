"""Comparing results, curves over checkpoints, and what the reports print."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation_parts import ScriptedEngine, run, subject, sums
from rich.console import Console
from rich.table import Table

from gmc.errors import UsageError
from gmc.evaluation.compare import compare, comparison_record
from gmc.evaluation.curve import write_curve
from gmc.evaluation.report import (
    comparison_table,
    mcnemar_lines,
    mean_table,
    result_tables,
    settings_line,
    warning_lines,
)
from gmc.evaluation.results import Result, read_result
from gmc.evaluation.rewarded import Rewarded
from gmc.evaluation.samples import Sample
from gmc.evaluation.scores import count_outcomes, main_score, mean_score, problem_scores
from gmc.evaluation.statistics import estimate, mcnemar, paired_difference
from gmc.store.files import strict_json

pytestmark = pytest.mark.unit


def printed(*tables: Table) -> str:
    console = Console(width=80, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables:
        console.print(table)
    return console.export_text()


def outcomes(result: Result, decoding: str) -> np.ndarray:
    rows = [sample.reward for sample in result.samples() if sample.decoding == decoding]
    return np.array(rows, dtype=float).reshape(result.record["problems"]["count"], -1).mean(axis=1)


def two(tmp_path: Path, problems: int = 40) -> tuple[Result, Result]:
    weak = run(tmp_path, engine=ScriptedEngine(0.3), problems=sums(problems), policy=subject(label="base", weights_hash="a"))
    strong = run(tmp_path, engine=ScriptedEngine(0.8), problems=sums(problems), policy=subject(weights_hash="b"))
    return weak, strong


def test_comparison_is_paired_over_problems(tmp_path: Path) -> None:
    weak, strong = two(tmp_path)
    comparison = compare(weak, strong)
    by_name = {score.name: score for score in comparison.scores}
    assert list(by_name) == ["avg@4", "maj@4", "greedy"]
    assert by_name["avg@4"].difference == paired_difference(outcomes(weak, "sampled"), outcomes(strong, "sampled"))
    assert by_name["avg@4"].mcnemar is None
    assert by_name["greedy"].mcnemar == mcnemar(outcomes(weak, "greedy") == 1, outcomes(strong, "greedy") == 1)
    assert by_name["avg@4"].difference.low > 0
    assert comparison.differing_settings == ()
    record = json.loads(strict_json(comparison_record(comparison)))
    assert record["scores"]["greedy"]["mcnemar"]["only_second"] > 0


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    weak, strong = two(tmp_path)
    expected = comparison_record(compare(weak, strong))
    table = pq.read_table(strong.samples_path)
    pq.write_table(table.take(np.random.default_rng(0).permutation(len(table))), strong.samples_path)
    assert comparison_record(compare(weak, read_result(strong.scores_path))) == expected


def test_n_may_differ_and_settings_that_differ_are_told(tmp_path: Path) -> None:
    few = run(tmp_path / "a", samples=2)
    many = run(tmp_path / "b", samples=8, temperature=0.5)
    comparison = compare(few, many)
    assert comparison.scores[0].name == "avg@2 / avg@8"
    assert (comparison.scores[0].first.samples, comparison.scores[0].second.samples) == (2, 8)
    assert "temperature 1.0 → 0.5" in comparison.differing_settings
    assert "2 / 8" in printed(comparison_table(comparison))


def test_results_that_cannot_be_paired_are_refused(tmp_path: Path) -> None:
    one = run(tmp_path, problems=sums(5))
    with pytest.raises(UsageError, match="different problems"):
        compare(one, run(tmp_path, problems=sums(6)))
    sampled = run(tmp_path / "a", problems=sums(5), greedy=False)
    greedy = run(tmp_path / "b", problems=sums(5), samples=0)
    with pytest.raises(UsageError, match="no score is in both"):
        compare(sampled, greedy)


def stub(problem_ids: Sequence[str], right: Sequence[Sequence[bool]], decoding: str = "sampled", content: str = "c") -> Result:
    """A result of these problems; right: of each problem, one value a sample."""
    samples = [
        Sample(
            problem_id,
            "sum",
            decoding,
            number,
            "",
            "1",
            "",
            [1],
            "",
            [1],
            "stop",
            str(int(correct)),
            float(correct),
            [],
            "",
            None,
        )
        for problem_id, row in zip(problem_ids, right, strict=True)
        for number, correct in enumerate(row)
    ]
    record = {"problems": {"content_hash": content}, "spec": {"pass_k": []}, "versions": {}, "benchmark": "b"}
    result = Result(Path("scores.json"), record)
    object.__setattr__(result, "samples", lambda: samples)
    return result


@pytest.mark.parametrize("contents", [("a", "b"), ("b", "a")])
def test_other_problems_are_refused_in_either_order(contents: tuple[str, str]) -> None:
    one, other = (stub(["p"], [[True]], content=content) for content in contents)
    with pytest.raises(UsageError, match="different problems"):
        compare(one, other)


@pytest.mark.parametrize("ids", [(["p", "q"], ["p"]), (["p"], ["p", "q"]), (["p", "q"], ["p", "r"])])
def test_other_problem_ids_are_refused_in_either_order(ids: tuple[list[str], list[str]]) -> None:
    one, other = (stub(each, [[True]] * len(each)) for each in ids)
    with pytest.raises(UsageError, match="different problem ids"):
        compare(one, other)


def test_only_one_right_or_wrong_outcome_a_problem_gives_mcnemar() -> None:
    ids, once, twice = ["p", "q"], [[True], [False]], [[True, True], [False, False]]
    (single,) = compare(stub(ids, once), stub(ids, once[::-1])).scores
    assert single.mcnemar == mcnemar(np.array([True, False]), np.array([False, True]))
    for first, second in ((twice, twice), (once, twice), (twice, once)):
        assert compare(stub(ids, first), stub(ids, second)).scores[0].mcnemar is None
    mixed = [[True, False], [False, False]]
    assert compare(stub(ids, mixed), stub(ids, once)).scores[0].mcnemar is None


@pytest.mark.parametrize("samples", [(1, 3), (3, 1), (2, 2)])
def test_a_score_is_named_by_both_numbers_of_samples(samples: tuple[int, int]) -> None:
    one, other = (stub(["p"], [[True] * count]) for count in samples)
    expected = "avg@2" if samples == (2, 2) else f"avg@{samples[0]} / avg@{samples[1]}"
    assert [score.name for score in compare(one, other).scores] == [expected]


def test_intervals_of_a_comparison_are_those_of_seed_0_unless_another_is_asked_for() -> None:
    ids = [f"p{i}" for i in range(9)]
    one, other = stub(ids, [[i % 3 == 0] for i in range(9)]), stub(ids, [[i % 2 == 0] for i in range(9)])
    first, second = np.arange(9) % 3 == 0, np.arange(9) % 2 == 0
    for options in ({}, {"seed": 1}):
        (found,) = compare(one, other, **options).scores
        assert found.first == estimate(first.astype(float), samples=1, **options)
        assert found.difference == paired_difference(first.astype(float), second.astype(float), **options)


def test_curve_has_every_version_in_order(tmp_path: Path) -> None:
    results = [
        run(tmp_path, engine=ScriptedEngine(skill), policy=subject(label=f"v{version:06d}", version=version))
        for version, skill in ((20, 0.6), (0, 0.3), (10, 0.5))
    ]
    points, plot = write_curve(results, tmp_path)
    record = json.loads(points.read_text())
    assert [point["version"] for point in record["points"]] == [0, 10, 20]
    assert record["points"][0]["scores"]["avg@4"] == results[1].record["scores"]["avg@4"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_no_number_is_printed_without_n_and_interval(tmp_path: Path) -> None:
    weak, strong = two(tmp_path)
    text = printed(*result_tables([weak, strong]))
    assert "40 problems" in text
    assert "95 % interval" in text
    for result in (weak, strong):
        for value in result.estimates().values():
            cell = f"{100 * value.value:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"
            line = next(line for line in text.splitlines() if cell in line)
            assert f" {value.samples} " in line.split("]")[1]
    text = printed(comparison_table(compare(weak, strong)))
    assert "paired over 40 problems" in text
    assert text.count("[") == 3 * 3
    (line,) = mcnemar_lines(compare(weak, strong))
    assert "only by base" in line
    assert "of 40" in line
    assert "base" in settings_line(weak) or "weights a" in settings_line(weak)


def test_means_over_benchmarks(tmp_path: Path) -> None:
    results = [run(tmp_path, problems=sums(count), engine=ScriptedEngine(skill)) for count, skill in ((30, 0.2), (10, 0.9))]
    means = mean_score(results)
    assert list(means) == ["mean avg", "mean greedy"]
    expected = np.mean([result.estimates()["avg@4"].value for result in results])
    assert means["mean avg"].value == pytest.approx(expected)
    text = printed(mean_table("v000007", means, ["a", "b"]))
    assert "mean over a, b" in text
    assert "n at least" in text
    assert "mean greedy" not in mean_score([results[0], run(tmp_path / "c", greedy=False)])


def test_warnings_name_what_a_reader_must_know(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert warning_lines(result) == []
    record = json.loads(strict_json(dict(result.record)))
    record["problems"] |= {"content_hash_matches": False, "expected_content_hash": "f" * 64}
    record["outcomes"]["sampled"] |= {"timeouts": 2, "crashes": 1}
    record["notes"] = ["3 rows refused"]
    lines = warning_lines(Result(result.scores_path, record))
    assert [line.split(":")[0] for line in lines] == ["sums", "sums", "sums, sampled"]
    assert "2 answer checks timed out and 1 crashed of 40" in lines[2]


def test_same_label_on_both_sides_is_told_apart(tmp_path: Path) -> None:
    text = printed(comparison_table(compare(run(tmp_path), run(tmp_path, seed=1))))
    assert "second minus first" in text


def test_outcomes_by_value() -> None:
    def one(number: int, tokens: int, grade: str, reason: str) -> Sample:
        return Sample("p", "", "sampled", number, "", "", "", [1], "", [1] * tokens, reason, None, 0.0, [], grade, None)

    counts = count_outcomes([one(0, 5, "timeout", "length"), one(1, 2, "unparseable", "stop"), one(2, 3, "crash", "stop")])
    assert vars(counts) == {
        "responses": 3,
        "truncated_share": 1 / 3,
        "unparseable_share": 1 / 3,
        "timeouts": 1,
        "crashes": 1,
        "mean_response_tokens": 10 / 3,
    }


def test_a_majority_that_is_wrong_scores_nothing() -> None:
    scores = problem_scores(stub(["p", "q"], [[True, False, False], [True, True, False]]).samples()).scores
    assert scores["maj@3"].tolist() == [0.0, 1.0]


def test_parts_of_a_reward_have_means_of_their_own() -> None:
    parts = iter([[0.5, 1.0], [0.25, math.nan], [1.0, 0.0]])
    samples = [replace(sample, reward_parts=next(parts)) for sample in stub(["p"], [[True, False, True]]).samples()]
    scores = problem_scores(samples, rewarded=Rewarded(("exact", "short"), False, (False, False))).scores
    assert scores["avg@3 exact"].tolist() == [pytest.approx(1.75 / 3)]
    assert scores["avg@3 short"].tolist() == [pytest.approx(1 / 3)]  # where a part does not apply it is 0


def test_the_score_that_stands_for_a_benchmark() -> None:
    assert main_score(["pass@2", "avg@4", "greedy"]) == "avg@4"
    assert main_score(["pass@2", "greedy", "maj@4"]) == "greedy"
    assert main_score(["maj@4", "pass@2"]) == "maj@4"


@pytest.mark.parametrize(("samples", "names"), [(1, ["avg@1"]), (2, ["avg@2"]), (3, ["avg@3", "maj@3"])])
def test_a_majority_needs_three_votes(samples: int, names: list[str]) -> None:
    assert list(problem_scores(stub(["p"], [[True] * samples]).samples()).scores) == names
