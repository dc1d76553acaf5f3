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


def test_a_run_that_learned_nothing_says_so(tmp_path, capsys):
    settings = small_settings("delay=0", "estimator=gmc", "train.updates=2", "rollout.max_tokens=2")
    train_run(tmp_path / "run", settings)
    assert "2 of 2 updates had equal rewards in every group and taught nothing" in capsys.readouterr().err.replace("\n", " ")
