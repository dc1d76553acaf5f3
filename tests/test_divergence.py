"""A run that has diverged or died says so, once, with update and metric; train.stop_on ends it in good order."""

import logging

import pytest
from training_runs import small_settings
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.training import run
from gmc.training.divergence import SILENT_UPDATES, DivergenceWatch

HEALTHY = {
    "reward/equal_groups_share": 0.5,
    "ratio/log_per_token_mean": -0.05,
    "ratio/log_rho_mean": -1.5,
    "optimizer/gradient_norm": 0.1,
    "optimizer/skipped": 0.0,
}


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("changes", "sign", "metric"),
    [
        ({"ratio/log_per_token_mean": -1.01}, "drift", "ratio/log_per_token_mean = -1.01"),
        ({"optimizer/gradient_norm": 0.0}, "no-gradient", "optimizer/gradient_norm = 0"),
        ({"optimizer/gradient_norm": float("nan")}, "non-finite", "optimizer/gradient_norm = nan"),
        ({"ratio/log_rho_mean": float("-inf")}, "non-finite", "ratio/log_rho_mean = -inf"),
    ],
)
def test_each_sign_is_said_once_with_its_update_and_metric(changes, sign, metric, caplog):
    watch = DivergenceWatch(stop_on=[sign])
    watch.look(6, HEALTHY)
    assert (lines(caplog), watch.found) == ([], "")
    for update in (7, 8):
        watch.look(update, HEALTHY | changes)
    [line] = lines(caplog)
    assert f"update 7: {sign}" in line
    assert metric in line
    assert watch.found.startswith(f"update 7: {sign}")


@pytest.mark.unit
@pytest.mark.parametrize(
    "changes",
    [
        {"ratio/log_per_token_mean": -0.99},
        {"optimizer/gradient_norm": 0.0, "reward/equal_groups_share": 1.0},
        {"optimizer/gradient_norm": 0.0, "optimizer/skipped": 1.0},
    ],
)
def test_what_a_healthy_run_may_show_is_no_sign(changes, caplog):
    watch = DivergenceWatch(stop_on=["drift", "no-gradient"])
    watch.look(0, HEALTHY | changes)
    assert (lines(caplog), watch.found) == ([], "")


@pytest.mark.unit
def test_a_run_without_signal_is_dead_after_updates_in_a_row(caplog):
    watch, silent = DivergenceWatch(), HEALTHY | {"reward/equal_groups_share": 1.0}
    for update in range(SILENT_UPDATES - 1):
        watch.look(update, silent)
    watch.look(SILENT_UPDATES - 1, HEALTHY)
    for update in range(100, 100 + SILENT_UPDATES):
        assert lines(caplog) == []
        watch.look(update, silent)
    [line] = lines(caplog)
    assert f"update {99 + SILENT_UPDATES}: no-signal" in line
    assert watch.found == "", "it is said, and nobody asked to stop"


@pytest.mark.train
def test_a_rate_beyond_reason_is_said_and_stops_a_run_that_asked_for_it(tmp_path, caplog):
    wild = ("optimizer.learning_rate=1e8", "delay=2", "train.updates=4")
    result = run.train_run(tmp_path / "stops", small_settings(*wild, 'train.stop_on=["drift"]'))
    assert not result.finished
    assert result.updates == 2
    assert result.stopped_on.startswith("update 1: drift: ratio/log_per_token_mean = -")
    assert (tmp_path / "stops" / "checkpoints" / "u000002" / "READY").exists()
    assert any("update 1: drift" in line for line in lines(caplog))


@pytest.mark.train
def test_the_command_ends_what_has_died_and_says_so_without_asking_for_what_was_asked(tmp_path):
    arguments = ["--run", str(tmp_path / "run"), "--delay", "0", "--max-tokens", "1", "--prompts", "1", "--group-size", "2"]
    ended = CliRunner().invoke(app, ["train", *arguments, "--set", 'train.stop_on=["no-signal"]'])
    assert ended.exit_code == 1
    said = " ".join(ended.output.split())
    assert f"ended after {SILENT_UPDATES} updates, as train.stop_on asks (update {SILENT_UPDATES - 1}: no-signal" in said
    assert "ends such a run" not in said
    assert (tmp_path / "run" / "checkpoints" / f"u{SILENT_UPDATES:06d}" / "READY").exists()
