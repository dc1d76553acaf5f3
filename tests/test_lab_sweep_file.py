"""Sweep files: what they multiply to, which settings each run gets, and what is refused in one line."""

import tomllib

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.file_kinds import EXACT, RECIPE, SWEEP, TOY, command_of
from gmc.config.recipes import recipes_directory
from gmc.errors import UsageError
from gmc.lab.results import Results
from gmc.lab.selection import at_an_end, candidates, choose, chosen_elsewhere
from gmc.lab.sweep_file import Sweep, parse_sweep, read_sweep
from gmc.lab.sweep_plan import Planner, cell_key, cell_text
from tests.sweep_files import make_record, make_sweep, sweep_content, write_sweep

pytestmark = pytest.mark.unit


def test_every_combination_is_tuned_on_every_tuning_seed(tmp_path):
    runs = Planner(make_sweep(select={"seeds": [100, 101], "axes": ["optimizer.learning_rate"]}), "small.toml").tuning()
    found = [
        (run.cell.arm, run.settings.estimator.get("epsilon"), run.settings.optimizer.learning_rate, run.seed) for run in runs
    ]
    expected = [("gmc", e, r, s) for s in (100, 101) for r in (1e-4, 4e-4) for e in (0.28, 1.0)]
    expected += [("grpo", None, r, s) for s in (100, 101) for r in (1e-4, 4e-4)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {run.settings.seed for run in runs} == {100, 101}
    assert {run.settings.delay for run in runs} == {"ramp:2"}
    assert len({run.run for run in runs}) == len(runs)


def test_the_verdict_uses_what_was_chosen_and_its_own_axes():
    sweep = make_sweep(verdict={"axes": {"horizon": [{"delay": "ramp:2"}, {"delay": "ramp:3", "train.updates": 8}]}})
    planner = Planner(sweep, "small.toml")
    choice = {
        cell_key("gmc", {}): {"optimizer.learning_rate": 4e-4, "estimator.epsilon": 1.0},
        cell_key("grpo", {}): {"optimizer.learning_rate": 1e-4},
    }
    found = [
        (run.cell.arm, run.seed, run.settings.delay, run.settings.train.updates, run.settings.optimizer.learning_rate)
        for run in planner.verdict(choice)
    ]
    rates = {"gmc": 4e-4, "grpo": 1e-4}
    assert sorted(found) == sorted(
        (arm, seed, delay, updates, rates[arm])
        for arm in rates
        for seed in (0, 1)
        for delay, updates in (("ramp:2", 4), ("ramp:3", 8))
    )
    assert planner.verdict_cells() == 4
    assert len(planner.verdict({cell_key("grpo", {}): {}})) == 4  # an arm without a choice has no verdict


def test_without_a_selection_all_runs_are_the_verdict():
    planner = Planner(make_sweep(select=None), "small.toml")
    assert planner.tuning() == []
    assert len(planner.verdict({})) == 2 * (2 * 2 + 2)


def test_an_arm_may_be_a_variant_of_a_rule_and_takes_its_tuned_settings():
    arms = {"gmc": {}, "slow": {"tuned": "gmc", "settings": {"estimator": "gmc", "optimizer.beta1": 0.5}}}
    sweep = make_sweep(arms=arms, select=None, axes=None)
    tuned = {name: {"estimator.epsilon": 2.0, "optimizer.beta1": 0.8} for name in arms}
    runs = {run.cell.arm: run.settings for run in Planner(sweep, "f", tuned).verdict({})}
    assert {name: (s.estimator["name"], s.estimator["epsilon"], s.optimizer.beta1) for name, s in runs.items()} == {
        "gmc": ("gmc", 2.0, 0.8),
        "slow": ("gmc", 2.0, 0.5),
    }


def test_a_curve_publishes_policies_at_its_points():
    runs = Planner(make_sweep(curve={"every": 2}), "f").tuning()
    assert {run.settings.train.publish_every for run in runs} == {2}
    plain = Planner(make_sweep(), "f").tuning()
    assert {run.run for run in runs}.isdisjoint(run.run for run in plain)


def tuned_records(scores):
    return [
        make_record(arm, seed, score, stage="tuning", values={"optimizer.learning_rate": rate})
        for (arm, rate, seed), score in scores.items()
    ]


def test_the_highest_mean_over_all_tuning_seeds_is_chosen():
    sweep = make_sweep(arms={"gmc": {}, "grpo": {}}, select={"seeds": [100, 101], "axes": ["optimizer.learning_rate"]})
    scores = {
        ("gmc", 1e-4, 100): 0.9,
        ("gmc", 1e-4, 101): 0.1,
        ("gmc", 4e-4, 100): 0.6,
        ("gmc", 4e-4, 101): 0.5,
        ("grpo", 1e-4, 100): 0.2,
        ("grpo", 1e-4, 101): 0.2,
        ("grpo", 4e-4, 100): 0.9,
    }
    records = tuned_records(scores)
    assert choose(sweep, records) == {
        cell_key("gmc", {}): {"optimizer.learning_rate": 4e-4},
        cell_key("grpo", {}): {"optimizer.learning_rate": 1e-4},  # 4e-4 lacks a seed
    }
    failed = make_record("grpo", 101, 0.9, stage="tuning", status="failed", values={"optimizer.learning_rate": 4e-4})
    assert choose(sweep, [*records, failed])[cell_key("grpo", {})] == {"optimizer.learning_rate": 1e-4}
    assert [each.mean for each in candidates(sweep, records)] == pytest.approx([0.5, 0.55, 0.2, None])
    verdict = [make_record("gmc", 0, 1.0, values={"optimizer.learning_rate": 1e-4})]
    assert choose(sweep, [*records, *verdict]) == choose(sweep, records)


def test_area_can_choose_otherwise_than_the_end():
    select = {"seeds": [100], "axes": ["optimizer.learning_rate"], "measure": "area"}
    sweep = make_sweep(arms={"gmc": {}}, compare=None, select=select, curve={"every": 2})

    def record(rate, final, height):
        curve = [{"version": v, "benchmark": "arithmetic", "scores": {"avg@1": height}} for v in (0, 4)]
        return make_record("gmc", 100, final, stage="tuning", values={"optimizer.learning_rate": rate}, curve=curve)

    assert choose(sweep, [record(1e-4, 0.9, 0.3), record(4e-4, 0.5, 0.4)]) == {
        cell_key("gmc", {}): {"optimizer.learning_rate": 4e-4}
    }


def test_a_choice_at_the_end_of_its_axis_is_noticed():
    sweep = make_sweep(arms={"gmc": {}}, axes={"optimizer.learning_rate": [1e-4, 2e-4, 4e-4]}, select=None)
    ends = {}
    for rate in (1e-4, 2e-4, 4e-4):
        (candidate,) = candidates(
            make_sweep(arms={"gmc": {}}, select={"seeds": [100], "axes": ["optimizer.learning_rate"]}),
            [make_record("gmc", 100, 0.5, stage="tuning", values={"optimizer.learning_rate": rate})],
        )
        ends[rate] = at_an_end(sweep, candidate)
    assert ends == {1e-4: ["optimizer.learning_rate"], 2e-4: [], 4e-4: ["optimizer.learning_rate"]}


def test_another_sweeps_choice_is_taken_by_name(tmp_path):
    select = {"seeds": [100], "axes": ["optimizer.learning_rate"]}
    other = make_sweep(arms={"gmc": {}, "tic": {}}, select=select)
    records = [make_record("gmc", 100, 0.5, stage="tuning", values={"optimizer.learning_rate": 4e-4})]
    results = Results(tmp_path / "other.jsonl", other, [], records)
    study = make_sweep(arms={"gmc": {}, "grpo": {}, "slow": {"tuned": "gmc"}}, select=None)
    assert chosen_elsewhere(results, study) == {
        "gmc": {"optimizer.learning_rate": 4e-4},
        "slow": {"optimizer.learning_rate": 4e-4},
    }
    with pytest.raises(UsageError, match="nothing is chosen for arm tic yet"):
        chosen_elsewhere(results, make_sweep(arms={"gmc": {}, "tic": {}}, select=None))


def test_a_cell_in_words():
    run = Planner(make_sweep(select=None, arms={"gmc": {}}, axes={"shape": [{"rollout.prompts": 4}]}), "f").verdict({})[0]
    assert cell_text(run.cell) == "gmc, prompts 4"


REFUSED = {
    "unknown key": ({"sedes": [1]}, "unknown key sedes; did you mean seeds?"),
    "shared seed": ({"seeds": [100, 1]}, "seed 100 is in seeds and in select.seeds"),
    "seed twice": ({"seeds": [1, 1]}, "seeds names a seed twice"),
    "no arms": ({"arms": {}}, "arms is missing; "),
    "no axis": ({"select": {"seeds": [5], "axes": ["delay"]}}, "select.axes names delay, which is no axis"),
    "empty axis": ({"axes": {"delay": []}}, "delay is a list of at least one value"),
    "value twice": ({"axes": {"delay": ["1", "1"]}}, "delay names a value twice"),
    "baseline": ({"compare": {"baseline": "tic"}}, "compare names tic, the arms are gmc, grpo"),
    "two ways": ({"compare": {"baseline": "gmc", "pairs": [["gmc", "grpo"]]}}, "give a baseline or pairs"),
    "no triple": ({"compare": {"pairs": [["gmc", "grpo", "gmc"]]}}, "compare.pairs.0"),
    "verdict alone": ({"select": None, "verdict": {"axes": {"delay": ["1"]}}}, r"\[verdict\] follows a \[select\]"),
    "verdict axis": ({"verdict": {"axes": {"estimator.epsilon": [1.0]}}}, "verdict.axes names estimator.epsilon"),
    "area": ({"select": {"seeds": [5], "axes": ["estimator.epsilon"], "measure": "area"}}, r"needs a \[curve\]"),
    "folder": ({"name": "a/b"}, "a name is made of letters"),
    "empty curve": ({"curve": {"samples": 0}}, "samples = 0 without greedy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_file_is_refused_by_name(case):
    changed, message = REFUSED[case]
    with pytest.raises(UsageError, match=f"^small.toml: .*{message}") as error:
        make_sweep(**changed)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml: no such file"):
        read_sweep(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seeds = [1")
    with pytest.raises(UsageError, match=r"bad\.toml: not a TOML file"):
        read_sweep(tmp_path / "bad.toml")
    assert isinstance(read_sweep(write_sweep(tmp_path)), Sweep)


WRONG_SETTINGS = {
    "base": ({"settings": {"train": {"updats": 3}}}, r"unknown setting train\.updats; did you mean train\.updates"),
    "arm": (
        {"arms": {"gmc": {"settings": {"optimizer.beta1": -1.0}}}, "compare": None, "select": None},
        r"\[arms.gmc.settings\]: optimizer.beta1 = -1.0",
    ),
    "rule": ({"arms": {"gcm": {}}, "compare": None, "select": None}, "Did you mean gmc"),
    "cap": (
        {"arms": {"gmc": {}}, "axes": {"estimator.epsilon": [-2.0]}, "compare": None, "select": None},
        "arm gmc, epsilon -2",
    ),
    "delay": ({"settings": {"delay": "rampe:4"}}, "rampe"),
    "nothing to train on": ({"settings": {"delay": "shards"}}, "the runs of a sweep begin without any"),
}


def first_runs(sweep):
    planner = Planner(sweep, "small.toml")
    return planner.tuning() or planner.verdict({})


@pytest.mark.parametrize("case", WRONG_SETTINGS)
def test_wrong_settings_of_a_run_are_refused_before_anything_runs(case):
    changed, message = WRONG_SETTINGS[case]
    sweep = parse_sweep(sweep_content(**changed), "small.toml")
    with pytest.raises(UsageError, match=message) as error:
        first_runs(sweep)
    assert str(error.value).startswith("small.toml")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["lab", "sweep", "paper-qwen3-1.7b-fixed-delay.toml"], "gmc train --recipe"),
        (["lab", "sweep", "lab/s8-toy.toml"], "gmc lab toy"),
        (["lab", "toy", "lab/s8-exact.toml"], "gmc lab exact"),
        (["lab", "exact", "lab/s2.toml"], "gmc lab sweep"),
        (["train", "--recipe", "lab/s8-toy.toml"], "gmc lab toy"),
        (["train", "--recipe", "lab/s2.toml"], "gmc lab sweep"),
    ],
)
def test_a_file_of_another_command_names_that_command(arguments, command):
    *words, file = arguments
    path = recipes_directory() / file
    result = CliRunner().invoke(app, [*words, str(path)])
    assert result.exit_code == 2
    assert f"{command} {path} takes it" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("path", sorted(recipes_directory().rglob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_file_is_known_for_what_it_is(path):
    text = path.read_text("utf-8")
    said = next((command for command in (SWEEP, EXACT, TOY) if f"#   {command} recipes/" in text), None)
    expected = said or (SWEEP if path.parent.name == "lab" else RECIPE)
    assert command_of(tomllib.loads(text)) == expected
