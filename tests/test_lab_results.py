"""The results file, and the numbers of a run, against plain arithmetic."""

import json
import math
from dataclasses import replace

import pytest

from gmc.errors import DataError
from gmc.lab.measures import area, curve_points, final_score, updates_to, worst_drop
from gmc.lab.results import ResultsFile, flat_settings, is_same_run, read_results
from gmc.lab.results_of_run import collect_run
from gmc.lab.sweep_file import Curve
from gmc.lab.sweep_plan import Planner
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory
from tests.sweep_files import make_record, make_sweep
from tests.test_evaluation_arms import fake_run

pytestmark = pytest.mark.unit


def planned():
    return Planner(make_sweep(), "small.toml").tuning()


def record_of(run, **changed):
    return make_record(run.cell.arm, run.seed, 0.5, run=run.run, stage=run.stage, settings=run.flat, **changed)


def test_records_come_back_as_they_were_written(tmp_path):
    runs = planned()
    file = ResultsFile(tmp_path / "r.jsonl", make_sweep(), runs[0].settings)
    records = [record_of(run) for run in runs]
    for record in records:
        file.append(record)
    results = read_results(tmp_path / "r.jsonl")
    assert results.records == records
    assert results.sweep == make_sweep()
    assert results.tuning_seeds == {100}
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["differs"] == {}
    assert json.loads(lines[2])["differs"] == {"estimator.epsilon": 1.0}
    # Opening it again for the same study adds nothing; for another study a header.
    ResultsFile(tmp_path / "r.jsonl", make_sweep(), runs[0].settings)
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == len(lines)
    other = ResultsFile(tmp_path / "r.jsonl", make_sweep(seeds=[7]), runs[-1].settings)
    other.append(replace(records[0], run="again"))
    found = read_results(tmp_path / "r.jsonl")
    assert found.sweep.seeds == [7]
    assert [record.settings for record in found.records] == [r.settings for r in (*records, records[0])]


def test_a_line_cut_by_a_kill_is_dropped_and_the_file_goes_on(tmp_path):
    runs = planned()
    path = tmp_path / "r.jsonl"
    ResultsFile(path, make_sweep(), runs[0].settings).append(record_of(runs[0]))
    with open(path, "a") as file:
        file.write('{"kind": "run", "ru')
    assert len(read_results(path).records) == 1
    ResultsFile(path, make_sweep(), runs[0].settings).append(record_of(runs[1]))
    assert [record.run for record in read_results(path).records] == [runs[0].run, runs[1].run]


def test_the_newest_line_of_a_run_counts(tmp_path):
    run = planned()[0]
    file = ResultsFile(tmp_path / "r.jsonl", make_sweep(), run.settings)
    file.append(record_of(run, status="failed"))
    file.append(record_of(run))
    assert [record.status for record in read_results(tmp_path / "r.jsonl").records] == ["finished"]


@pytest.mark.parametrize("line", ["[]", '{"kind": "other"}', '{"kind": "run", "run": 1}', "{"])
def test_damage_is_named_by_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    ResultsFile(path, make_sweep(), planned()[0].settings)
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"r\.jsonl, line 2"):
        read_results(path)


def test_a_run_is_known_by_its_settings_wherever_it_was_made():
    run, *others = planned()
    record, origins = record_of(run), run.settings.origins
    assert is_same_run(run.flat, origins, record)
    assert not any(is_same_run(other.flat, other.settings.origins, record) for other in others)
    elsewhere = run.settings.model_copy(update={"model": run.settings.model.model_copy(update={"device": "cuda"})})
    assert is_same_run(flat_settings(elsewhere, None), origins, record)
    assert not is_same_run(flat_settings(run.settings, Curve(every=2)), origins, record)
    with_curve = replace(record, settings=flat_settings(run.settings, Curve(every=2)))
    assert not is_same_run(run.flat, origins, with_curve)
    # A setting that came later and stands at its default makes no other run; one that was said does.
    older = {key: value for key, value in run.flat.items() if key not in ("optimizer.beta1", "train.updates")}
    assert is_same_run(run.flat, origins, replace(record, settings=older | {"train.updates": 4}))
    assert not is_same_run(run.flat, origins, replace(record, settings=older))


CURVE = [(0, 0.3), (100, 0.5), (200, 0.45), (400, 0.65)]


def test_curve_numbers_against_plain_arithmetic():
    assert area(CURVE) == pytest.approx((0.4 * 100 + 0.475 * 100 + 0.55 * 200) / 400)
    assert worst_drop(CURVE) == pytest.approx(0.05)
    assert worst_drop(CURVE[:2]) == 0
    assert updates_to(CURVE, 0.4) == pytest.approx(50)
    assert updates_to(CURVE, 0.6) == pytest.approx(350)
    assert updates_to(CURVE, 0.2) == 0
    assert updates_to(CURVE, 0.7) is None
    assert area(CURVE[:1]) is worst_drop(CURVE[:1]) is None


def test_benchmarks_count_once_and_only_at_versions_that_all_have():
    score = {"avg@4": {"value": 0.2}, "greedy": {"value": 0.9}}
    record = make_record("gmc", 0, 0.5, scores={"a": score, "b": {"greedy": {"value": 0.6}}})
    assert final_score(record) == pytest.approx(0.4)
    curve = [{"version": v, "benchmark": b, "scores": {"avg@1": s}} for v, b, s in ((0, "a", 0.1), (0, "b", 0.3), (5, "a", 1))]
    assert curve_points(replace(record, curve=curve)) == [(0, pytest.approx(0.2))]


def test_a_run_directory_is_summarized_by_plain_means(tmp_path):
    path = fake_run(tmp_path / "run", "gmc", "8", 0, [0.5] * 45)
    run = RunDirectory.open(path)
    run.save_settings("train", resolve_settings(flags={"delay": "8"}))
    names = ("delay/mean", "delay/max", "ratio/ess_share", "ratio/removed_mass", "ratio/log_rho_std", "weight/zero_share")
    records = []
    for n in range(45):
        record = {
            "update": n,
            "reward/mean": n / 45,
            "delay/version_0_rate_share_so_far": 1 / (n + 1),
            "optimizer/skipped": float(n == 3),
        }
        record |= dict.fromkeys(names, n / 10) | {"optimizer/gradient_norm": n / 30, "time/seconds": 0.5}
        records.append(record | {"response/length_mean": 20.0})
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = collect_run(path, clip_norm=1.0)
    assert found.training["version_0_share"] == pytest.approx(1 / 45, rel=1e-4)
    assert found.training["reward_last"] == pytest.approx(22 / 45, rel=1e-4)
    assert found.training["gradient_norm_max"] == pytest.approx(44 / 30, rel=1e-4)
    assert found.training["gradient_clipped_share"] == pytest.approx(14 / 45, rel=1e-4)
    assert found.training["skipped_share"] == pytest.approx(1 / 45, rel=1e-4)
    assert found.training["ess_share"] == pytest.approx(2.2, rel=1e-4)
    assert found.updates == 45
    assert found.seconds == {"training": 22.5}
    assert len(found.windows["update"]) == 20
    assert found.windows["update"][:6] == [3, 6, 9, 12, 15, 17]
    assert found.windows["reward/mean"][0] == pytest.approx(1 / 45, rel=1e-4)
    assert not math.isnan(sum(found.training.values()))
