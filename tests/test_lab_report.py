"""Reports: every number against plain arithmetic or scipy, what is refused, and what the files hold."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from statistics import mean, stdev
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.errors import UsageError
from gmc.lab.report import make_report, write_report
from gmc.lab.report_contents import asked_text
from gmc.lab.report_input import ReportInput, _runs_below, read_input
from gmc.lab.report_numbers import differences, interquartile_mean, middle_of_many, over
from gmc.lab.report_page import page as make_page
from gmc.lab.report_tables import Column, Table
from gmc.lab.results import ResultsFile
from gmc.lab.results_of_run import collect_run
from gmc.lab.sweep_plan import Planner
from gmc.store.run_directory import RunDirectory
from tests.sweep_files import make_record, make_sweep, score_record
from tests.test_evaluation_arms import fake_run

pytestmark = pytest.mark.unit

SCORES = {"gmc": [0.75, 0.71, 0.78, 0.70], "tic": [0.70, 0.69, 0.72, 0.66], "grpo": [0.60, 0.72, 0.61, 0.70]}
RATE = "optimizer.learning_rate"


def write_results(path, scores=SCORES, tuning=(), failed=(), **changed):
    """A study of three rules whose rate was tuned on seed 100, with these final scores on seeds 0, 1, …"""
    arms = {name: {} for name in scores}
    settings = {"arms": arms, "select": {"seeds": [100], "axes": [RATE]}, "seeds": [0, 1, 2, 3], "compare": {"baseline": "gmc"}}
    sweep = make_sweep(**settings | changed)
    file = ResultsFile(path, sweep, Planner(sweep, "small.toml").tuning()[0].settings)
    for name, rate, score in tuning:
        file.append(make_record(name, 100, score, stage="tuning", values={RATE: rate}))
    for name, values in scores.items():
        for seed, score in enumerate(values):
            status = "failed" if (name, seed) in failed else "finished"
            file.append(make_record(name, seed, score, chosen={RATE: 4e-4}, status=status, error="not finite"))
    return path


def test_differences_are_students_paired_by_seed_and_corrected_together(tmp_path):
    report = make_report([write_results(tmp_path / "r.jsonl")])
    raw = {}
    for each in report.compared:
        ours, theirs = SCORES["gmc"], SCORES[each.second.name]
        expected = stats.ttest_rel(theirs, ours)
        low, high = expected.confidence_interval(0.95)
        assert each.paired.mean == pytest.approx(mean(b - a for a, b in zip(ours, theirs, strict=True)))
        assert (each.paired.mean - each.paired.reach, each.paired.mean + each.paired.reach) == pytest.approx((low, high))
        assert each.paired.p_value == pytest.approx(expected.pvalue)
        assert each.ahead == sum(b > a for a, b in zip(ours, theirs, strict=True))
        raw[each.second.name] = (expected.pvalue, each.holm)
    assert list(raw) == ["tic", "grpo"]
    (small, first), (large, second) = sorted(raw.values())
    assert first == pytest.approx(2 * small)
    assert second == pytest.approx(max(2 * small, large))
    assert "2 comparisons were declared" in next(table.note for table in report.tables if table.name == "comparisons")
    assert dict(report.provenance)["comparisons"].startswith("2,")


def test_pairs_may_be_declared_and_every_measure_counts(tmp_path):
    compare = {"pairs": [["tic", "grpo"]], "measures": ["final", "area"]}
    report = make_report([write_results(tmp_path / "r.jsonl", compare=compare, curve={"every": 100})])
    assert [(d.first.name, d.second.name, d.measure) for d in report.compared] == [
        ("tic", "grpo", "final"),
        ("tic", "grpo", "area"),
    ]
    final, area = report.compared
    assert area.paired.mean == pytest.approx(final.paired.mean / 2)  # the curves are straight lines from one point
    assert dict(report.provenance)["comparisons"].startswith("2,")


def test_seeds_that_only_one_arm_finished_are_left_out_of_the_difference(tmp_path):
    report = make_report([write_results(tmp_path / "r.jsonl", failed={("tic", 1)})])
    tic = next(each for each in report.compared if each.second.name == "tic")
    assert tic.paired.seeds == 3
    assert tic.paired.mean == pytest.approx(mean([-0.05, -0.06, -0.04]))
    failed = next(table for table in report.tables if table.name == "failed")
    assert failed.rows == [["tic", "", "1", "not finite"]]


def test_tuning_and_verdict_seeds_are_never_mixed(tmp_path):
    path = write_results(tmp_path / "r.jsonl")
    sweep = make_sweep(arms={"gmc": {}}, compare=None, select={"seeds": [2], "axes": [RATE]}, seeds=[7], name="other")
    other = ResultsFile(tmp_path / "o.jsonl", sweep, Planner(sweep, "f").tuning()[0].settings)
    other.append(make_record("gmc", 7, 0.5))
    with pytest.raises(UsageError, match=r"its seed 2 chose settings"):
        make_report([path, tmp_path / "o.jsonl"])
    spent = ResultsFile(
        path, make_sweep(arms={"gmc": {}}, compare=None, select=None), Planner(sweep, "f").tuning()[0].settings, [3]
    )
    assert spent.path == path
    with pytest.raises(UsageError, match=r"run gmc-s3.* its seed 3 chose settings"):
        make_report([path])


def test_the_tuning_is_shown_apart_with_what_was_chosen(tmp_path):
    tuning = [("gmc", 1e-4, 0.9), ("gmc", 4e-4, 0.5), ("tic", 1e-4, 0.1), ("tic", 4e-4, 0.2)]
    report = make_report([write_results(tmp_path / "r.jsonl", tuning=tuning)])
    table = next(table for table in report.tables if table.name == "tuning")
    assert [[row[0], row[2], row[-1]] for row in table.rows] == [
        ["gmc", "0.0001", "chosen"],
        ["gmc", "0.0004", ""],
        ["tic", "0.0001", ""],
        ["tic", "0.0004", "chosen"],
    ]
    assert "tuning seeds (100)" in table.note
    scores = next(table for table in report.tables if table.name == "scores")
    assert scores.rows[0][2].mean == pytest.approx(mean(SCORES["gmc"]))  # 0.9 on seed 100 is not in it


def test_means_have_students_interval():
    values = [0.2, 0.9, 0.4]
    found = over([*values, None])
    assert (found.mean, found.runs) == (pytest.approx(0.5), 3)
    assert found.reach == pytest.approx(4.302652730 * stdev(values) / 3**0.5)
    assert over([0.3]).reach is None
    assert over([None]) is None


def test_the_interquartile_mean_is_of_the_middle_half_with_a_stratified_bootstrap(tmp_path):
    scores = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.0, 0.9, 1.0, 0.35]]
    found = interquartile_mean(scores)
    ordered = sorted(value for each in scores for value in each)
    assert found.value == pytest.approx(mean(ordered[3:9]))
    generator = np.random.default_rng(5)
    drawn = []
    for _ in range(4000):
        sample = sorted(value for each in scores for value in generator.choice(each, len(each)))
        drawn.append(mean(sample[3:9]))
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])), abs=0.02)
    many = {name: {"avg@4": score_record(value)} for name, value in (("a", 0.2), ("b", 0.4), ("c", 0.6))}
    (arm,) = read_input([write_results(tmp_path / "r.jsonl", {"gmc": [0.5, 0.5]})]).arms
    assert middle_of_many(arm) is None  # one benchmark
    arm = replace(arm, runs=tuple(replace(run, scores=many) for run in arm.runs))
    assert middle_of_many(arm).value == pytest.approx(0.4)


def test_the_window_of_the_training_reward_is_named_as_it_is(tmp_path):
    text = write_results(tmp_path / "r.jsonl").read_text()
    names = {}
    for case, updates in (("long", [400]), ("short", [8]), ("mixed", [8, 400])):
        lines = [
            line.replace('"updates": 400', f'"updates": {updates[n % len(updates)]}')
            for n, line in enumerate(text.splitlines())
        ]
        (tmp_path / f"{case}.jsonl").write_text("\n".join(lines) + "\n")
        columns = make_report([tmp_path / f"{case}.jsonl"]).tables[0].columns
        names[case] = next(column.name for column in columns if column.name.startswith("training"))
    assert names == {
        "long": "training reward, last 50",
        "short": "training reward, last 8",
        "mixed": "training reward, last 50 or all of fewer",
    }


def test_other_rewards_are_no_percentages(tmp_path):
    path = write_results(tmp_path / "r.jsonl")
    path.write_text(path.read_text().replace('"samples": 4', '"samples": 4, "binary": false'))
    report = make_report([path])
    assert not report.found.binary
    assert f"| gmc |  | {mean(SCORES['gmc']):.3g} ±" in report.markdown()
    assert "final, %" not in report.markdown()
    assert not any("correct, %" in plot.svg for plot in report.plots())


class Page(HTMLParser):
    """Notes what a page loads, and whether its tags close."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.loaded += [
            value for name, value in attributes if name in ("src", "xlink:href", "href") and not value.startswith("#")
        ]
        self.ids += [given["id"]] if tag in ("section", "figure") and "id" in given else []
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.loaded += [
            value for name, value in attributes if name in ("src", "xlink:href", "href") and not value.startswith("#")
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of a report on three rules, two of them tuned, by name."""
    folder = tmp_path_factory.mktemp("report")
    tuning = [(name, rate, 0.5 + 100 * rate) for name in ("gmc", "tic") for rate in (1e-4, 4e-4)]
    files = write_report(make_report([write_results(folder / "r.jsonl", tuning=tuning)]), folder / "out")
    return {file.name: file for file in files}


def test_the_page_stands_alone_and_every_plot_says_how_to_read_it(written):
    text = written["report.html"].read_text("utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.loaded == []
    figures = ["curve-0", "reward-0", "forest", "tuning-0", "tuning-1", "stability", "ess", "removed", "delay-0"]
    assert page.ids == ["scores", "comparisons", "plots", *figures, "staleness", "tuning", "provenance"]
    assert text.count("How to read this.") == len(figures)
    assert 'name="viewport"' in text
    assert "<script" not in text


def test_a_setting_that_all_share_is_said_once_and_keeps_no_column():
    columns = [Column("arm"), Column("setting"), Column("n", "number")]
    same, several = ([["gmc", "delay 8", 1], ["tic", value, 2]] for value in ("delay 8", "delay 64"))
    text = shown(columns, same)
    assert ("<th class=text>setting" in text, "All at delay 8. note" in text) == (False, True)
    text = shown(columns, several)
    assert ("<th class=text>setting" in text, "delay 64" in text) == (True, True)
    links = re.search("<nav>(.*)</nav>", text)
    assert re.findall('href="#(.*?)"', links[1]) == ["one", "two", "plots", "provenance"]


def shown(columns, rows):
    tables = [Table(name, name, columns, rows, "note") for name in ("one", "two")]
    return make_page(ReportInput("t", "", [], None), tables, [], [])


def test_tables_agree_in_every_form(written):
    rows = list(csv.DictReader(io.StringIO(written["scores.csv"].read_text("utf-8"))))
    assert float(rows[0]["final"]) == pytest.approx(mean(SCORES["gmc"]))
    assert float(rows[0]["final ±"]) == pytest.approx(3.182446305 * stdev(SCORES["gmc"]) / 2)
    cell = f"{100 * mean(SCORES['gmc']):.1f} ± {100 * float(rows[0]['final ±']):.1f}"
    assert f"| gmc |  | {cell} |" in written["report.md"].read_text("utf-8")
    assert cell.replace("±", r"$\pm$") in written["scores.tex"].read_text("utf-8")
    assert r"final, \%" in written["scores.tex"].read_text("utf-8")
    assert cell in written["report.html"].read_text("utf-8")


def test_run_directories_are_arms_too(tmp_path):
    paths = [fake_run(tmp_path / f"{rule}-{seed}", rule, "64", seed, [0.5] * 9) for rule in ("gmc", "tic") for seed in (0, 1)]
    found = read_input(paths)
    assert [(arm.name, arm.context, arm.seeds) for arm in found.arms] == [("gmc", "", [0, 1]), ("tic", "", [0, 1])]
    assert found.compare.baseline == "gmc"
    assert "gmc-0: not evaluated; gmc eval --run RUN --policy all scores it" in found.notes
    assert sorted(found.unevaluated) == sorted(paths)
    assert str(tmp_path) not in make_report(paths).markdown()
    assert differences(found) == []
    one = make_report(paths[:1])
    assert one.markdown().startswith("# gmc-0\n")
    assert "\nMean over training runs" in one.markdown()
    assert [table.name for table in one.tables] == ["scores", "staleness"]
    assert {plot.name for plot in one.plots()} == {"reward-0"}


def test_one_run_shows_what_its_updates_met(tmp_path):
    path = fake_run(tmp_path / "one", "gmc", "64", 0, [0.5] * 40)
    logged = {"delay/mean": 3.0, "response/length_mean": 21.0, "ratio/ess_share": 0.5, "ratio/removed_mass": 0.25}
    records = [{"update": update, "reward/mean": 0.5, **logged} for update in range(40)]
    RunDirectory.open(path).metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert collect_run(path, clip_norm=1.0).windows["response/length_mean"] == [21.0] * 20
    files = write_report(make_report([path]), tmp_path / "out")
    plots = {file.stem: file.read_text("utf-8") for file in files if file.suffix == ".svg"}
    assert plots.keys() == {"reward-0", "delay-0", "length-0", "ess", "removed"}
    assert ("tokens" in plots["length-0"], "mean delay, updates" in plots["delay-0"]) == (True, True)
    assert tmp_path / "out" / "report.html" in files


def test_equal_seeds_have_no_interval(tmp_path):
    report = make_report([write_results(tmp_path / "r.jsonl", {"gmc": [0.5] * 4, "tic": [0.7] * 4})])
    (difference,) = report.compared
    assert (difference.paired.mean, difference.paired.reach, difference.holm) == (pytest.approx(0.2), None, None)
    text = report.markdown()
    assert "± 0" not in text
    assert "| 50.0 ± – |" in text


def test_the_report_says_which_problems_were_asked(tmp_path):
    found = read_input([write_results(tmp_path / "r.jsonl")])
    assert asked_text(found) == "the benchmark arithmetic"
    assert "Scored on the benchmark arithmetic. Mean over" in make_report([tmp_path / "r.jsonl"]).markdown()

    def renamed(source):
        records = [replace(run, scores={"mine": run.scores["arithmetic"]}) for run in found.arms[0].runs]
        records = [replace(run, settings={**run.settings, "problems.source": source}) for run in records]
        return replace(found, arms=[replace(found.arms[0], runs=tuple(records))])

    assert "mine, the problems that training asked: a high score may be memory" in asked_text(renamed("/data/mine.jsonl"))
    assert "mine, problems of a file that training did not ask" in asked_text(renamed("arithmetic"))
    assert asked_text(replace(found, arms=[])) == ""
    for words in ("eld-out", "eld out"):
        assert words not in make_report([tmp_path / "r.jsonl"]).markdown()


def test_the_command_writes_and_says_what_it_found(tmp_path):
    path = write_results(tmp_path / "r.jsonl")
    result = CliRunner().invoke(app, ["lab", "report", str(path), "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [each["second"] for each in record["comparisons"]] == ["tic", "grpo"]
    assert (tmp_path / "out" / "report.html").is_file()
    linked = re.findall(r"^!\[.+\]\((.+\.svg)\)$", (tmp_path / "out" / "report.md").read_text("utf-8"), re.MULTILINE)
    assert "curve-0.svg" in linked
    curves = (tmp_path / "out" / "curve-0.svg").read_text("utf-8")
    assert curves.count("FillBetweenPolyCollection") == 3, "a band for each arm, although all runs begin at one score"
    for name in linked:  # each stands alone: an image viewer wants the name space
        assert ElementTree.parse(tmp_path / "out" / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "tic − gmc, final: -4.25 ± " in result.stderr
    refused = CliRunner().invoke(app, ["lab", "report", str(path), "--baseline", "vcpo", "--out", str(tmp_path / "no")])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "--baseline vcpo: the arms are gmc, tic, grpo" in refused.stderr
    assert not (tmp_path / "no").exists()
    missing = CliRunner().invoke(app, ["lab", "report", str(tmp_path)])
    assert missing.exit_code == 2
    assert "no trained run in it" in missing.stderr


def test_a_folder_of_runs_stands_for_the_runs_in_it(tmp_path):
    for name in ("b", "deep/a"):
        run = RunDirectory.create(tmp_path / name, model="embedded", seed=0)
        run.metrics.write_text('{"update": 0, "reward/mean": 0.5}\n')
    RunDirectory.create(tmp_path / "untrained", model="embedded", seed=0)
    assert _runs_below(tmp_path) == [tmp_path / "b", tmp_path / "deep" / "a"]
    assert _runs_below(tmp_path / "b") == [tmp_path / "b"]
