"""Runs side by side over seeds: who belongs together, what the intervals are, what is refused."""

import json
from statistics import mean, stdev

import numpy as np
import pytest
import tomli_w
from scipy import stats
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.layers import FIELDS
from gmc.errors import DataError, UsageError
from gmc.evaluation.arms import WINDOW, TrainedRun, group_by_arm, over_seeds, read_trained_run
from gmc.evaluation.arms_differences import arm_differences
from gmc.evaluation.arms_report import _value, arm_tables, dash_lines
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory

STUDENT_975 = {2: 12.706204736, 3: 4.302652730, 4: 3.182446305}
"""Quantiles of Student's t at 0.975 for n runs (n − 1 degrees of freedom), from a table."""


COUNTS = {"responses": 9, "truncated_share": 0.0, "unparseable_share": 0.0, "timeouts": 0, "crashes": 0}
COUNTS |= {"mean_response_tokens": 5.0}
UNKNOWN = {"source": "", "weights_hash": "", "tokenizer_hash": "", "run_id": ""}
SPEC = {"benchmark": "arithmetic", "template_id": "plain", "greedy": True, "temperature": 1.0, "top_p": 1.0, "max_tokens": 64}
SPEC |= {"pass_k": [1], "seed": 0, "reward": ["math"]}


def fake_run(path, rule, delay, seed, rewards, score=None, updates=200):
    run = RunDirectory.create(path, model="embedded", seed=seed)
    settings = {"seed": seed, "delay": delay, "estimator": {"name": rule}, "train": {"updates": updates}}
    run.settings("train").parent.mkdir()
    run.settings("train").write_text(tomli_w.dumps({"settings": settings, "versions": {}}))
    run.metrics.write_text("".join(json.dumps({"update": n, "reward/mean": r}) + "\n" for n, r in enumerate(rewards)))
    if score is not None:
        for version, value in ((updates // 2, 0.99), (updates, score)):  # the newest counts
            record = {
                "benchmark": "arithmetic",
                "scores": {"greedy": {"value": value, "low": 0, "high": 1, "samples": 1, "problems": 9}},
                "outcomes": {"greedy": COUNTS},
                "versions": {},
                "notes": [],
                "model": {"label": f"v{version:06d}", "version": version, **UNKNOWN},
                "problems": {"content_hash": "c", "content_hash_matches": None, "count": 9, "source": "arithmetic"},
                "spec": {"samples": 1, **SPEC},
            }
            run.evals.mkdir(exist_ok=True)
            (run.evals / f"arithmetic-v{version:06d}-0.json").write_text(json.dumps(record))
    return path


@pytest.fixture
def runs(tmp_path):
    paths = []
    for rule, base in (("gmc", 0.8), ("tic", 0.6)):
        for delay in ("0", "64", "256"):
            for seed in range(3):
                rewards = [0.1] * 150 + [base - 0.02 * seed] * 50
                paths.append(fake_run(tmp_path / f"{rule}-{delay}-{seed}", rule, delay, seed, rewards, base + 0.01 * seed))
    return paths


@pytest.mark.train
def test_runs_that_differ_in_the_seed_alone_are_one_arm(runs):
    arms = group_by_arm([read_trained_run(path) for path in reversed(runs)])
    assert [arm.label for arm in arms] == [
        f"delay {delay}, estimator {rule}" for delay in (0, 64, 256) for rule in ("gmc", "tic")
    ]
    assert [[run.seed for run in arm.runs] for arm in arms] == [[0, 1, 2]] * 6


@pytest.mark.unit
def test_arms_of_complete_settings_are_named_by_what_was_chosen(runs, tmp_path):
    found = []
    for rule in ("gmc", "grpo"):
        for seed in range(2):
            path = fake_run(tmp_path / f"new-{rule}-{seed}", rule, "8", seed, [0.5] * 9)
            device = ["cpu", "cuda"][seed]  # where a run was trained makes no arm
            flags = {"estimator.name": rule, "delay": "8", "seed": seed, "model.device": device}
            RunDirectory.open(path).save_settings(
                "train", resolve_settings(flags=flags, assignments=["model.compute_dtype=float32"])
            )
            found.append(read_trained_run(path))
    arms = group_by_arm(found)
    assert [(arm.label, len(arm.runs)) for arm in arms] == [("estimator gmc", 2), ("estimator grpo", 2)]
    with pytest.raises(UsageError, match="did not save every setting"):
        group_by_arm([*found, read_trained_run(runs[0])])


@pytest.mark.unit
def test_a_default_that_changed_between_runs_makes_two_arms(tmp_path, monkeypatch):
    found = []
    for seed, momentum in enumerate((0.9, 0.8)):
        monkeypatch.setattr(FIELDS["optimizer.beta1"], "default", momentum)
        path = fake_run(tmp_path / str(seed), "gmc", "8", seed, [0.5] * 9)
        RunDirectory.open(path).save_settings("train", resolve_settings(flags={"seed": seed}))
        found.append(read_trained_run(path))
    assert [arm.label for arm in group_by_arm(found)] == ["optimizer.beta1 0.8", "optimizer.beta1 0.9"]


@pytest.mark.unit
@pytest.mark.parametrize("values", [[0.3, 0.5], [0.2, 0.9, 0.4], [0.1, 0.1, 0.2, 0.7]])
def test_the_interval_is_students(values):
    found, reach = over_seeds(values), STUDENT_975[len(values)] * stdev(values) / len(values) ** 0.5
    assert (found.mean, found.low, found.high) == pytest.approx((mean(values), mean(values) - reach, mean(values) + reach))
    assert (over_seeds(values[:1]).low, over_seeds(values[:1]).mean) == (None, values[0])
    equal = over_seeds([0.1 + 0.2, 0.3, 0.3])  # equal but for rounding
    assert (equal.low, equal.high, equal.seeds) == (None, None, 3)
    assert _value(equal, True) == "30.0 ± –"


@pytest.mark.train
def test_tables_and_json_hold_every_arm(runs, tmp_path):
    plot = tmp_path / "curves.png"
    result = CliRunner().invoke(app, ["eval", "arms", *map(str, runs), "--plot", str(plot), "--json"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    arms = json.loads(result.stdout)["arms"]
    assert arms[0]["arm"] == "delay 0, estimator gmc"
    assert arms[0]["final_reward"]["mean"] == pytest.approx(0.78)
    assert arms[0]["evaluations"][0]["scores"]["greedy"]["mean"] == pytest.approx(0.81)
    assert arms[0]["evaluations"][0]["scores"]["greedy"]["seeds"] == 3
    assert "81.0 ± 2.5" in result.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.train
def test_the_best_window_is_the_best_of_consecutive_updates(tmp_path):
    rewards = [0.0] * 30 + [1.0] * WINDOW + [0.5] * 40
    run = read_trained_run(fake_run(tmp_path / "run", "gmc", "0", 0, rewards))
    assert run.peak_reward(WINDOW) == pytest.approx(1.0)
    assert run.final_reward(WINDOW) == pytest.approx((40 * 0.5 + 10) / WINDOW)
    assert run.peak_reward(60) == pytest.approx((WINDOW + 10 * 0.5) / 60)


@pytest.mark.unit
def test_differences_are_paired_by_seed_and_corrected_together(tmp_path):
    scores = {"gmc": [0.80, 0.70, 0.75], "grpo": [0.60, 0.66, 0.50], "tic": [0.78, 0.69, 0.70]}
    found = [
        read_trained_run(fake_run(tmp_path / f"{rule}-{delay}-{seed}", rule, delay, seed, [score] * 60, score - delta))
        for delay, delta in (("0", 0.0), ("64", 0.1))
        for rule, values in scores.items()
        for seed, score in enumerate(values)
        if (rule, delay, seed) != ("tic", "64", 2)
    ]
    made = arm_differences(group_by_arm(found))
    labels = [(each.second.label, each.score) for each in made]
    assert labels == [
        (f"delay {delay}, estimator {rule}", score)
        for delay in (0, 64)
        for rule in ("grpo", "tic")
        for score in ("training reward, last 50", "arithmetic, greedy")
    ]
    assert {each.first.label for each in made} == {"delay 0, estimator gmc", "delay 64, estimator gmc"}
    raw = []
    for each in made:
        rule = each.second.differing["estimator"]
        pairs = list(zip(scores["gmc"], scores[rule], strict=True))[: each.paired.seeds]
        expected = stats.ttest_rel([b for _, b in pairs], [a for a, _ in pairs])
        low, high = expected.confidence_interval(0.95)
        assert each.paired.mean - each.paired.reach == pytest.approx(low)
        assert each.paired.mean + each.paired.reach == pytest.approx(high)
        assert each.ahead == 0
        raw.append(expected.pvalue)
    assert [each.paired.seeds for each in made] == [3] * 6 + [2] * 2
    least = min(range(len(raw)), key=raw.__getitem__)
    assert made[least].holm == pytest.approx(8 * raw[least])
    assert all(each.holm >= p for each, p in zip(made, raw, strict=True))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("scores", "dash"),
    [
        ({"gmc": [0.7, 0.8], "grpo": [0.5, 0.9]}, False),
        ({"gmc": [0.7, 0.8], "grpo": [0.5, 0.6]}, True),  # the same difference on both seeds
        ({"gmc": [0.7], "grpo": [0.5]}, True),
        ({"gmc": [0.7, 0.7], "grpo": [0.5, 0.9]}, True),
    ],
)
def test_a_dash_in_the_tables_is_explained(tmp_path, scores, dash):
    found = [
        read_trained_run(fake_run(tmp_path / f"{rule}-{seed}", rule, "0", seed, [score] * 60, score))
        for rule, values in scores.items()
        for seed, score in enumerate(values)
    ]
    lines = dash_lines(arm_tables(group_by_arm(found)))
    assert [line.startswith("–: no interval or no p") for line in lines] == [True] * dash


@pytest.mark.train
def test_short_runs_have_honest_labels_and_a_curve(tmp_path):
    runs = [fake_run(tmp_path / str(n), "gmc", "0", n, [0.1 * k for k in range(n)]) for n in (8, 9)]
    plot = tmp_path / "curves.svg"
    result = CliRunner().invoke(app, ["eval", "arms", *map(str, runs), "--plot", str(plot), "--json"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    assert "last 8" in result.stderr
    assert "last 50" not in result.stderr
    (arm,) = json.loads(result.stdout)["arms"]
    assert arm["reward_window"] == 8
    assert arm["final_reward"]["mean"] == pytest.approx(
        mean([mean(0.1 * k for k in range(8)), mean(0.1 * k for k in range(1, 9))])
    )
    assert "means of 2 updates" in plot.read_text()
    single = fake_run(tmp_path / "single", "gmc", "0", 5, [0.5])
    result = CliRunner().invoke(app, ["eval", "arms", str(single), "--plot", str(plot)])
    assert result.exit_code == 0
    assert "training reward -->" in plot.read_text()  # of one update there is no mean
    assert 'id="line2d' in plot.read_text()


@pytest.mark.unit
def test_results_are_of_the_newest_policy_and_never_of_the_base_model(tmp_path):
    path = fake_run(tmp_path / "run", "gmc", "0", 0, [0.5] * 9, 0.7)
    newest = next(iter(read_trained_run(path).results.values()))
    assert newest.record["model"]["version"] == 200
    for name, label, version in (("zz-older", "v000150", 150), ("zz-base", "base", 900), ("curve-x", "v000900", 900)):
        record = dict(newest.record) | {"model": {"label": label, "version": version, **UNKNOWN}}
        (path / "evals" / f"{name}.json").write_text(json.dumps(record))
    assert [result.record["model"]["version"] for result in read_trained_run(path).results.values()] == [200]
    record = dict(newest.record) | {"model": {"label": "a-copy", "version": 300, **UNKNOWN}}
    (path / "evals" / "a.json").write_text(json.dumps(record))
    assert [result.record["model"]["version"] for result in read_trained_run(path).results.values()] == [300]


@pytest.mark.unit
def test_arms_are_in_the_order_of_their_numbers_then_of_their_words(tmp_path):
    def arm(delay, rule, seed=0):
        return TrainedRun(tmp_path, seed, {"delay": delay, "estimator.name": rule}, None, np.ones(3), {})

    runs = [arm(delay, rule) for delay in ("length:28", "256", "64", "0") for rule in ("tic", "gmc")]
    labels = [found.label for found in group_by_arm(runs)]
    assert labels == [
        f"delay {delay}, estimator {rule}" for delay in ("0", "64", "256", "length:28") for rule in ("gmc", "tic")
    ]
    assert [found.label for found in group_by_arm([arm("0", "gmc", 1), arm("0", "gmc", 2)])] == ["all runs"]


@pytest.mark.unit
def test_a_line_without_a_reward_is_named(tmp_path):
    path = fake_run(tmp_path / "run", "gmc", "0", 0, [0.5, 0.5, None, 0.5])
    with pytest.raises(DataError, match="line 3: no reward/mean"):
        read_trained_run(path)


@pytest.mark.train
def test_what_is_missing_is_said(tmp_path):
    whole = fake_run(tmp_path / "whole", "gmc", "0", 0, [0.5] * 200, 0.7)
    short = fake_run(tmp_path / "short", "gmc", "0", 1, [0.5] * 20)
    result = CliRunner().invoke(app, ["eval", "arms", str(whole), str(short)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "20 of 200 updates" in result.stderr
    assert f"gmc eval --run {short}" in result.stderr.replace("\n", "")


@pytest.mark.train
@pytest.mark.parametrize("case", ["twice", "untrained", "no run", "damaged", "plot"])
def test_bad_input_is_one_line(case, tmp_path):
    good = str(fake_run(tmp_path / "good", "gmc", "0", 0, [0.5] * 9))
    other = tmp_path / "other"
    arguments = [good, str(other)]
    if case == "twice":
        fake_run(other, "gmc", "0", 0, [0.4] * 9)
    elif case == "untrained":
        fake_run(other, "gmc", "0", 1, [])
        arguments = arguments[1:]
    elif case == "damaged":
        fake_run(other, "gmc", "0", 1, [0.4])
        (other / "settings" / "train.toml").write_text("settings = 3")
    elif case == "plot":
        arguments = [good, "--plot", str(tmp_path / "x.jpeg")]
    result = CliRunner().invoke(app, ["eval", "arms", *arguments])
    assert result.exit_code == (1 if case == "damaged" else 2)
    assert result.stderr.count("\n") == 1
    assert ("x.jpeg" if case == "plot" else "other") in result.stderr
