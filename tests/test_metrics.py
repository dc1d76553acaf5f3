"""What an update logs, and what is said when nothing was learned."""

import re
from pathlib import Path

import pytest
from training_runs import small_settings, train_run

from gmc.store.files import read_jsonl

pytestmark = pytest.mark.train

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def test_the_page_names_every_metric_and_no_other(tmp_path):
    train_run(tmp_path / "run", small_settings("delay=0", "estimator=gmc", "train.updates=1"))
    logged = set(read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]) - {"update"}
    cells = [line.split("|")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)} - {"RULE/…"}
    assert named == logged


BY_VALUE_ELSEWHERE = {
    "optimizer/learning_rate": "test_update_values.py",
    "optimizer/learning_rate_scale": "test_update_values.py",
    "optimizer/gradient_norm": "test_update_values.py",
    "optimizer/skipped": "test_update_values.py",
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


def test_no_metric_is_logged_without_a_test_of_its_value(tmp_path):
    train_run(tmp_path / "run", small_settings("delay=0", "estimator=gmc", "train.updates=1"))
    logged = set(read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]) - {"update"}
    files = {"test_metrics_values.py", *BY_VALUE_ELSEWHERE.values()}
    text = {name: (Path(__file__).parent / name).read_text("utf-8") for name in files}
    for metric in logged:
        assert f'"{metric}"' in text[BY_VALUE_ELSEWHERE.get(metric, "test_metrics_values.py")], metric


def test_a_run_that_learned_nothing_says_so(tmp_path, caplog):
    settings = small_settings("delay=0", "estimator=gmc", "train.updates=2", "rollout.max_tokens=2")
    train_run(tmp_path / "run", settings)
    assert "2 of 2 updates had equal rewards in every group and taught nothing" in caplog.text
