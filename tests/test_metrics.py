"""What an update logs, and what is said when nothing was learned."""

import re
from pathlib import Path

import pytest
from training_runs import small_settings, train_run

from gmc.estimators.registry import build_estimator, list_estimators
from gmc.store.files import read_jsonl
from gmc.testing import random_batch, run_stages

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def named_under(heading):
    """The metrics in the first column of the page's table under a heading."""
    section = PAGE.read_text("utf-8").split(f"# {heading}\n")[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The metrics of an update of a run whose rule adds none."""
    run = tmp_path_factory.mktemp("metrics") / "run"
    train_run(run, small_settings("delay=0", "estimator=gmc", "train.updates=1"))
    return set(read_jsonl(run / "metrics.jsonl")[0]) - {"update"}


@pytest.mark.train
def test_the_page_names_every_metric_and_no_other(logged):
    assert named_under("Metrics") == logged


BY_VALUE_ELSEWHERE = {
    "optimizer/learning_rate": "test_update_values.py",
    "optimizer/learning_rate_scale": "test_update_values.py",
    "optimizer/gradient_norm": "test_update_values.py",
    "optimizer/skipped": "test_update_values.py",
    "delay/version_0_rate_share_so_far": "test_delays_version_0.py",
    "noise/token_spread": "test_session.py",
    "noise/response_spread": "test_session.py",
    "rollouts/groups_waiting": "test_scheduled_source.py",
    "response/generated_length_mean_so_far": "test_scheduled_source.py",
    "response/trained_length_mean_so_far": "test_scheduled_source.py",
    "time/seconds": "test_session.py",
    "time/tokens_per_second": "test_session.py",
    "time/update_seconds": "test_session.py",
}
"""Metrics that are not of `gmc.training.metrics`, and the file that compares each with plain floats."""


@pytest.mark.train
def test_no_metric_is_logged_without_a_test_of_its_value(logged):
    files = {"test_metrics_values.py", *BY_VALUE_ELSEWHERE.values()}
    text = {name: (Path(__file__).parent / name).read_text("utf-8") for name in files}
    for metric in logged:
        assert f'"{metric}"' in text[BY_VALUE_ELSEWHERE.get(metric, "test_metrics_values.py")], metric


AUTO = {"epsilon": "auto"}
RULES_OWN = {
    "gmc": (AUTO, {"epsilon_raw", "epsilon"}),
    "tic": (AUTO, {"epsilon_raw", "epsilon"}),
    "truncated": (AUTO, {"epsilon_raw", "epsilon"}),
    "group-truncated": (AUTO, {"epsilon_raw", "epsilon"}),
    "token-gmc": (AUTO, {"epsilon_raw", "epsilon"}),
    "vcpo": ({}, {"ess_fraction", "learning_rate_scale"}),
    "gac": ({}, {"cosine", "skip_rate", "consecutive_skips"}),
}
BY_VALUE = {"gac": "test_estimators_composed.py", "vcpo": "test_estimators_vcpo.py"}


@pytest.mark.unit
@pytest.mark.parametrize("rule", [found.name for found in list_estimators() if found.value.startswith("gmc.estimators.")])
def test_a_rules_own_metrics_are_on_the_page_and_compared_by_value(rule):
    settings, wanted = RULES_OWN.get(rule, ({}, set()))
    assert set(run_stages(build_estimator(rule, settings), random_batch(seed=0)).metrics) == wanted
    file = Path(__file__).parent / BY_VALUE.get(rule, "test_estimators_epsilon.py")
    prefix = "RULE" if settings == AUTO else rule
    for metric in wanted:
        assert f"{prefix}/{metric}" in named_under("A rule's own")
        assert f'["{metric}"]' in file.read_text("utf-8")


@pytest.mark.train
def test_a_run_that_learned_nothing_says_so(tmp_path, caplog):
    settings = small_settings("delay=0", "estimator=gmc", "train.updates=2", "rollout.max_tokens=2")
    train_run(tmp_path / "run", settings)
    assert "2 of 2 updates had equal rewards in every group and taught nothing" in caplog.text
