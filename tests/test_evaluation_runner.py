"""One evaluation from prompts to files: what is sampled, what is written, and that a killed one ends the same."""

import json
import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from evaluation_parts import ScriptedEngine, run, subject, sums, tokenizer

from gmc import __version__
from gmc.engines.base import Sampling
from gmc.errors import DataError, GmcError, UsageError
from gmc.evaluation import runner
from gmc.evaluation.results import Result, read_result
from gmc.evaluation.samples import SCHEMA, read_samples
from gmc.evaluation.scores import count_outcomes, problem_scores
from gmc.grading import Grader, Verdict
from gmc.problems.base import Problem
from gmc.problems.load import problem_set


def content(result: Result) -> tuple[str, list[object]]:
    return result.scores_path.read_text(), list(result.samples())


@pytest.mark.unit
def test_scores_are_those_of_the_samples(tmp_path: Path) -> None:
    result = run(tmp_path, pass_k=(1, 2))
    samples = result.samples()
    assert len(samples) == 10 * (4 + 1)
    sampled = np.array([s.reward == 1 for s in samples if s.decoding == "sampled"]).reshape(10, 4)
    estimates = result.estimates()
    assert list(estimates) == ["avg@4", "pass@1", "pass@2", "maj@4", "greedy"]
    assert estimates["avg@4"].value == pytest.approx(sampled.mean())
    assert estimates["pass@1"].value == pytest.approx(sampled.mean())
    wrong = (~sampled).sum(axis=1)
    assert estimates["pass@2"].value == pytest.approx(np.mean(1 - wrong * (wrong - 1) / (4 * 3)))
    assert estimates["greedy"].value == np.mean([s.reward for s in samples if s.decoding == "greedy"])
    assert {(e.samples, e.problems) for e in estimates.values()} == {(4, 10), (1, 10)}
    assert 0 < estimates["avg@4"].value < 1


@pytest.mark.unit
def test_engine_gets_every_sampling_value_from_the_spec(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    run(tmp_path, engine=engine, temperature=0.7, top_p=0.9, max_tokens=33)
    sampled, greedy = Sampling(temperature=0.7, top_p=0.9, max_tokens=33), Sampling(temperature=0.0, max_tokens=33)
    assert engine.calls == [(3, 4, sampled), (3, 1, greedy)] * 3 + [(1, 4, sampled), (1, 1, greedy)]


@pytest.mark.unit
def test_stop_strings_of_the_template_reach_the_engine(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    problems = problem_set("sums", [Problem("a", "What is $1+10$?", "11")])
    engine_prompt = ScriptedEngine()
    run(tmp_path, engine=engine, problems=problems, template_id="boxed-v1", samples=1)
    assert engine.calls[0][2].stop == ("\nProblem:",)
    assert not engine_prompt.calls


@pytest.mark.unit
def test_record_says_everything_that_decides_the_numbers(tmp_path: Path) -> None:
    problems = sums(3)
    record = json.loads(run(tmp_path, problems=problems, top_p=0.9).scores_path.read_text())
    assert (record["format"], record["gmc_version"]) == (2, __version__)
    assert record["spec"]["top_p"] == 0.9
    assert record["spec"]["template_id"] == "arithmetic-v1"
    assert record["problems"]["content_hash"] == problems.content_hash
    assert record["problems"]["count"] == 3
    assert record["model"]["weights_hash"] == "w" * 64
    assert record["model"]["version"] == 7
    assert record["prompt_example"] == "Problem: What is $0+10$?\nSolution:\n"
    assert {"gmc", "torch", "transformers", "math-verify", "python"} <= set(record["versions"])
    assert record["outcomes"]["sampled"]["responses"] == 12
    assert record["interval"].startswith("95 %")


@pytest.mark.train
def test_samples_open_elsewhere_with_their_types(tmp_path: Path) -> None:
    result = run(tmp_path, engine=ScriptedEngine(skill=0.0))
    table = pq.read_table(result.samples_path)
    assert table.schema.remove_metadata() == SCHEMA
    assert json.loads(table.schema.metadata[b"gmc.evaluation"])["spec"]["benchmark"] == "sums"
    frame = pd.read_parquet(result.samples_path)
    assert set(frame["sample"]) == {0, 1, 2, 3}
    assert frame["sample"].dtype == np.int32
    assert frame["reward"].dtype == np.float32
    loaded = datasets.load_dataset("parquet", data_files=str(result.samples_path), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(loaded) == 50
    assert isinstance(loaded[0]["response_token_ids"], list)


@pytest.mark.unit
def test_columns_that_are_null_throughout_keep_their_type(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine._answer = lambda gold, draw: replace(ScriptedEngine()._answer(gold, draw), token_ids=[], logprobs=[])  # type: ignore[method-assign]
    result = run(tmp_path, engine=engine)
    assert {(s.prediction, s.status, s.response) for s in result.samples()} == {(None, "unparseable", "")}
    assert pq.read_schema(result.samples_path).remove_metadata() == SCHEMA
    assert result.estimates()["maj@4"].value == 0.0
    assert result.record["outcomes"]["sampled"]["mean_response_tokens"] == 0.0


@pytest.mark.unit
def test_row_groups_stay_small(tmp_path: Path) -> None:
    file = pq.ParquetFile(run(tmp_path, problems=sums(40)).samples_path)
    assert file.metadata.num_row_groups == 14
    assert max(file.metadata.row_group(i).num_rows for i in range(14)) == 15


@pytest.mark.unit
def test_outcomes_are_counted_apart(tmp_path: Path) -> None:
    samples = run(tmp_path, problems=sums(60), engine=ScriptedEngine(skill=0.3)).samples()
    sampled = [sample for sample in samples if sample.decoding == "sampled"]
    counts = count_outcomes([replace(sampled[0], status="timeout"), replace(sampled[1], status="crash"), *sampled[2:]])
    assert (counts.timeouts, counts.crashes, counts.responses) == (1, 1, 240)
    cut = sum(sample.finish_reason == "length" for sample in sampled)
    assert count_outcomes(sampled).truncated_share == cut / 240 > 0
    assert count_outcomes(sampled).unparseable_share == sum(s.prediction is None for s in sampled) / 240 > 0


def _killed(directory: Path, call: int) -> None:
    def die(number: int) -> None:
        if number == call:
            os.kill(os.getpid(), signal.SIGKILL)

    run(directory, engine=ScriptedEngine(interrupt=die))


@pytest.mark.process
@pytest.mark.parametrize("call", [1, 2, 5, 8])
def test_killed_evaluation_resumes_to_the_same_files(tmp_path: Path, call: int) -> None:
    whole = run(tmp_path / "whole")
    killed = tmp_path / "killed"
    tokenizer()
    process = get_context("fork").Process(target=_killed, args=(killed, call))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not list(killed.glob("*.json"))
    engine = ScriptedEngine()
    resumed = run(killed, engine=engine, resume=True)
    assert len(engine.calls) == 8 - 2 * ((call - 1) // 2)
    assert content(resumed) == content(whole)
    assert sorted(path.suffix for path in killed.iterdir()) == [".json", ".parquet"]


@pytest.mark.unit
def test_leftovers_of_a_killed_writer_are_not_taken(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    stopped = tmp_path / "stopped"

    def stop(call: int) -> None:
        if call == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stopped, engine=ScriptedEngine(interrupt=stop))
    (parts,) = stopped.glob("*.parts")
    (parts / ".tmp-part-000001.parquet-1-abcd").write_bytes(b"half")
    assert content(run(stopped, resume=True)) == content(whole)


def _interrupt(directory: Path, **options: object) -> None:
    def stop(call: int) -> None:
        if call == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(directory, engine=ScriptedEngine(interrupt=stop), **options)  # type: ignore[arg-type]


@pytest.mark.unit
def test_resume_with_other_settings_or_problems_is_refused_by_name(tmp_path: Path) -> None:
    _interrupt(tmp_path)
    with pytest.raises(UsageError, match=r"spec\.temperature 1\.0 → 0\.5"):
        run(tmp_path, resume=True, temperature=0.5)
    edited = problem_set("sums", [replace(problem, answer="0") for problem in sums(10).problems])
    with pytest.raises(UsageError, match=r"problems\.content_hash"):
        run(tmp_path, problems=edited, resume=True)
    with pytest.raises(UsageError, match=r"model\.weights_hash"):
        run(tmp_path, policy=subject(weights_hash="v" * 64), resume=True)
    assert content(run(tmp_path, resume=True)) == content(run(tmp_path / "whole"))


@pytest.mark.unit
def test_without_resume_everything_is_made_again(tmp_path: Path) -> None:
    _interrupt(tmp_path)
    engine = ScriptedEngine()
    run(tmp_path, engine=engine)
    assert len(engine.calls) == 8


@pytest.mark.unit
def test_finished_evaluation_is_rescored_not_repeated(tmp_path: Path) -> None:
    run(tmp_path)
    engine = ScriptedEngine()
    again = run(tmp_path, engine=engine, resume=True, pass_k=(2,))
    assert not engine.calls
    assert "pass@2" in again.estimates()


@pytest.mark.unit
def test_progress_counts_every_response_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float | None, int]] = []
    evaluate = runner.evaluate

    def watched(*args: object, **options: object) -> Result:
        return evaluate(*args, **options, progress=lambda *numbers: seen.append(numbers))  # type: ignore[arg-type]

    monkeypatch.setattr("evaluation_parts.evaluate", watched)
    result = run(tmp_path)
    assert sum(new for _, new in seen) == 50
    assert seen[0][0] is None
    assert seen[-1][0] == pytest.approx(result.estimates()["avg@4"].value)


@pytest.mark.unit
def test_prompt_without_room_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-tokens \d+$"):
        run(tmp_path, policy=subject(context_tokens=70))
    with pytest.raises(UsageError, match="context is too short"):
        run(tmp_path, policy=subject(context_tokens=5))
    assert not list(tmp_path.iterdir())
    result = run(tmp_path, policy=subject(context_tokens=70), fit_length=True)
    room = result.record["spec"]["max_tokens"]
    assert 70 - 20 < room < 64
    assert result.record["notes"][-1].startswith(f"responses are limited to {room} tokens")
    with pytest.raises(UsageError, match="context is too short"):
        run(tmp_path, policy=subject(context_tokens=5), fit_length=True)


@pytest.mark.process
def test_crash_of_every_check_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = Verdict(False, "crash", None, "none")
    monkeypatch.setattr(Grader, "grade_many", lambda self, pairs, **flags: [crashed for _ in pairs])
    with pytest.raises(GmcError, match="every answer check"):
        run(tmp_path)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.process
def test_grader_learns_what_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, bool]] = []
    grade_many = Grader.grade_many

    def watched(self: Grader, pairs: list[tuple[str, str]], *, truncated: list[bool], **flags: list[bool]) -> list[Verdict]:
        told.extend((response, cut_off) for (_, response), cut_off in zip(pairs, truncated, strict=True))
        return grade_many(self, pairs, truncated=truncated, **flags)

    monkeypatch.setattr(Grader, "grade_many", watched)
    samples = run(tmp_path).samples()
    assert sorted(told) == sorted((sample.response, sample.finish_reason == "length") for sample in samples)
    assert {cut_off for _, cut_off in told} == {True, False}


@pytest.mark.unit
def test_scores_join_by_key_not_by_position(tmp_path: Path) -> None:
    samples = run(tmp_path).samples()
    shuffled = [samples[index] for index in np.random.default_rng(0).permutation(len(samples))]
    one, other = problem_scores(samples), problem_scores(shuffled)
    for name, values in one.scores.items():
        ordered = dict(zip(other.problem_ids, other.scores[name], strict=True))
        assert [ordered[problem_id] for problem_id in one.problem_ids] == values.tolist()


@pytest.mark.unit
@pytest.mark.parametrize("change", ["missing", "repeated", "missing greedy"])
def test_wrong_number_of_samples_is_refused(tmp_path: Path, change: str) -> None:
    samples = run(tmp_path).samples()
    first_greedy = next(index for index, sample in enumerate(samples) if sample.decoding == "greedy")
    changed = {
        "missing": samples[1:],
        "repeated": [samples[0], *samples],
        "missing greedy": samples[:first_greedy] + samples[first_greedy + 1 :],
    }[change]
    with pytest.raises(DataError, match="problem p0 has"):
        problem_scores(changed)


@pytest.mark.unit
def test_damaged_results_are_named(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert read_result(result.samples_path).record == read_result(result.scores_path.with_suffix("")).record == result.record
    with pytest.raises(UsageError, match=r"missing\.json: no such result"):
        read_result(tmp_path / "missing.json")
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(DataError, match="not a result"):
        read_result(other)
    other.write_text(json.dumps({**result.record, "format": 99}))
    with pytest.raises(DataError, match="format 99"):
        read_result(other)
    result.samples_path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable samples file"):
        read_samples(result.samples_path)
    with pytest.raises(DataError, match="no such file"):
        read_samples(tmp_path / "missing.parquet")
    pq.write_table(pq.read_table(run(tmp_path).samples_path).drop_columns(["status"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column status"):
        read_samples(tmp_path / "a.parquet")
