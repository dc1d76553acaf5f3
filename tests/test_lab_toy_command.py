"""Verdicts over seeds, and `gmc lab toy`."""

import json
import math

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.recipes import recipes_directory
from gmc.errors import UsageError
from gmc.evaluation.paired import holm, paired
from gmc.lab.study_file import read_grids
from gmc.lab.toy.grid import ToyGrid
from gmc.lab.toy.schedule import make_schedule
from gmc.lab.toy.verdicts import verdicts
from gmc.store.files import strict_json


def cell(rule, rate, final, arm=None, delay="64"):
    return {
        **{"updates": 300, "prompts": 8, "group_size": 8, "seeds": len(final), "delay": delay, "optimizer": "adam"},
        **{"arm": arm or rule, "rate": rate, "rule": rule, "settings": {}, "spread": 1.0},
        **{"final": final, "area": [value and value / 2 for value in final], "drop": [0.1] * len(final)},
    }


@pytest.mark.unit
def test_a_paired_difference_is_students():
    found = paired([0.1, 0.2, 0.4], [0.3, 0.3, 0.5])
    mean, deviation = 0.4 / 3, math.sqrt(((0.2 - 0.4 / 3) ** 2 + 2 * (0.1 - 0.4 / 3) ** 2) / 2)
    assert found.mean == pytest.approx(mean)
    assert found.reach == pytest.approx(4.302652729911275 * deviation / math.sqrt(3))  # t(0.975; 2)
    statistic = mean / (deviation / math.sqrt(3))
    assert found.p_value == pytest.approx(1 - statistic / math.sqrt(statistic**2 + 2))  # Student's tails with 2 degrees
    equal, shifted, one = paired([0.1, 0.2], [0.1, 0.2]), paired([0.1, 0.2], [0.3, 0.4]), paired([0.1], [0.2])
    assert (equal.reach, equal.p_value) == (None, 1.0)
    assert (shifted.reach, shifted.p_value) == (None, None)  # two equal differences say nothing of their spread
    assert shifted.mean == pytest.approx(0.2)
    assert (one.reach, one.p_value) == (None, None)


@pytest.mark.unit
def test_holm_never_lets_a_larger_p_value_overtake():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([]) == []


@pytest.mark.unit
def test_tuning_seeds_choose_and_the_others_judge():
    records = [
        cell("gmc", 0.1, [0.9, 0.9, 0.2, 0.3, 0.4, 0.5]),  # best for the first third, worst later
        cell("gmc", 0.2, [0.1, 0.1, 0.9, 0.9, 0.9, 0.9]),
        cell("tic", 0.1, [0.5, 0.5, 0.4, 0.5, 0.5, None]),
    ]
    gmc, tic = sorted(verdicts(records, reference="gmc"), key=lambda verdict: verdict.rule)
    assert (gmc.rate, gmc.candidates, gmc.final, gmc.difference) == (0.1, 2, pytest.approx(0.35), None)
    assert tic.difference.mean == pytest.approx((0.2 + 0.2 + 0.1 - 0.5) / 4)  # a run that left the numbers has J = 0
    assert tic.area_difference.mean == pytest.approx(tic.difference.mean / 2)
    assert tic.holm == pytest.approx(tic.difference.p_value)
    assert next(one for one in verdicts(records, reference="gmc", tuning=0) if one.rule == "gmc").rate == 0.2


@pytest.mark.unit
def test_p_values_are_corrected_over_the_whole_report():
    records = [
        cell(rule, 0.1, [v + add for v in (0.1, 0.3, 0.2)], delay=delay) for delay in "08" for rule, add in RULES.items()
    ]
    for place, final in {1: [0.2, 0.35, 0.29], 2: [0.2, 0.41, 0.3], 4: [0.2, 0.38, 0.24], 5: [0.2, 0.4, 0.33]}.items():
        records[place]["final"] = final
    found = [one for one in verdicts(records, reference="gmc", tuning=0) if one.difference is not None]
    assert len(found) == 4
    assert [one.holm for one in found] == holm([one.difference.p_value for one in found])


RULES = {"gmc": 0.0, "tic": 0.05, "is": 0.1}


@pytest.mark.unit
def test_a_missing_reference_and_too_many_tuning_seeds_are_refused():
    records = [cell("tic", 0.1, [0.5, 0.5, 0.4])]
    with pytest.raises(UsageError, match="reference gmc; name one of tic"):
        verdicts(records, reference="gmc")
    with pytest.raises(UsageError, match="leaves none of the 3 seeds"):
        verdicts(records, reference="tic", tuning=3)


@pytest.mark.unit
def test_a_setting_told_apart_competes_and_the_others_are_chosen():
    arms = {("loo", 1): [0.2, 0.2, 0.2], ("loo", 9): [0.3, 0.5, 0.5], ("weighted", 1): [0.4, 0.4, 0.4]}
    records = [
        {**cell("gmc", 0.1, final, arm=f"gmc {baseline} {cap}"), "settings": {"baseline": baseline, "epsilon": cap}}
        for (baseline, cap), final in arms.items()
    ]
    found = verdicts(records, reference="gmc baseline=loo", apart=["baseline"])
    assert [(one.rule, one.arm) for one in found] == [
        ("gmc baseline=loo", "gmc loo 9"),
        ("gmc baseline=weighted", "gmc weighted 1"),
    ]
    assert found[1].difference.mean == pytest.approx(-0.1)


ONE = ["lab", "toy", "--estimator", "gmc", "--estimator", "tic:epsilon=3", "--delay", "4", "--updates", "50", "--seeds", "3"]


@pytest.mark.train
def test_the_command_writes_json_csv_and_a_picture_and_goes_on_from_its_results(tmp_path):
    files = ["--out", str(tmp_path / "r.jsonl"), "--csv", str(tmp_path / "t.csv"), "--plot", str(tmp_path / "p.svg")]
    first = CliRunner().invoke(app, [*ONE, *files, "--json"])
    assert first.exit_code == 0, first.output
    record = json.loads(first.stdout)
    assert {one["arm"] for one in record["verdicts"]} == {"gmc", "tic epsilon=3"}
    assert [len(one["final"]) for one in record["cells"]] == [3] * 6
    assert (tmp_path / "t.csv").read_text().count("\n") == 7
    written = (tmp_path / "r.jsonl").read_bytes()
    (tmp_path / "r.jsonl").write_bytes(written[:-70])  # killed in its last line: only that job is run again
    assert json.loads(CliRunner().invoke(app, [*ONE, *files, "--json"]).stdout) == record
    assert (tmp_path / "r.jsonl").read_bytes() == written
    table = CliRunner().invoke(app, [*ONE, "--out", str(tmp_path / "r.jsonl")])
    assert "minus gmc" in table.output


@pytest.mark.process
def test_two_processes_give_the_same_results(tmp_path):
    one = json.loads(CliRunner().invoke(app, [*ONE, "--json"]).stdout)
    two = json.loads(CliRunner().invoke(app, [*ONE, "--json", "--jobs", "2"]).stdout)
    assert one == two


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[grid]]\nrates = [0.1, 0.1]\n", "list each rate and each delay once"),
        ('[[grid]]\noptimizers = ["lion"]\n', "optimizers"),
        ("[[grid]]\n[grid.rules]\ngmc = {}\n[[grid]]\nseeds = 9\n[grid.rules]\ntic = {}\n", "two grids differ in seeds"),
        ('[[grid]]\ndelays = ["live"]\n', "delay live"),
        ("[[grid]]\n[grid.rules]\nnosuch = {}\n", "nosuch"),
        ("[[grid]]\n[grid.rules]\ngmc = { epsilon = -2.0 }\n", "estimator.epsilon: -2.0 is not allowed"),
    ],
)
def test_a_bad_study_is_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "s.toml").write_text(text)
    result = CliRunner().invoke(app, ["lab", "toy", str(tmp_path / "s.toml")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.unit
@pytest.mark.parametrize("name", ["s1", "s1-seeds", "s7-toy", "s8-toy", "s9-toy"])
def test_shipped_studies_name_what_is_there(name):
    jobs = [job for grid in read_grids(recipes_directory() / "lab" / f"{name}.toml", ToyGrid) for job in grid.jobs()]
    keys = [strict_json(cell) for job in jobs for cell in job.cells]
    assert len(keys) == len(set(keys))
    for delay in {job.delay for job in jobs}:
        make_schedule(delay, updates=400, prompts=8, group_size=8, tokens=12)
