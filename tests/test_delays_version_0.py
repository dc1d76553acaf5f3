"""The share of the learning rate that falls on version 0: by value, ahead of a run, at its end, in status and in results."""

import io
import math

import pytest
from rich.console import Console
from test_update_values import Plain, make_updater
from training_runs import metrics_of, small_settings, train_run
from two_parameters import groups

from gmc.cli.status import screen
from gmc.delays.base import GroupRef
from gmc.delays.registry import parse_delay
from gmc.delays.version_0 import RateMass, applied_rate, forecast, mass_of_run, warning
from gmc.evaluation.subjects import model_candidate, run_candidates
from gmc.live.overview import overview
from gmc.store.run_directory import RunDirectory
from gmc.training.offline import OfflineWarning

SHARE = "delay/version_0_rate_share_so_far"


def cosine(updates):
    return [0.5 * (1 + math.cos(math.pi * update / updates)) for update in range(updates)]


def forecast_of(spec, rates):
    delays = parse_delay(spec, prompts=4, group_size=2, seed=0, updates=len(rates))
    return forecast(delays, 4, 2, rates.__getitem__, len(rates))


@pytest.mark.unit
@pytest.mark.parametrize(("delay", "share"), [(256, 0.929), (64, 0.317)])
def test_the_shares_of_the_delay_sweep_under_a_cosine(delay, share):
    rates = cosine(400)
    found = forecast_of(str(delay), rates).share
    assert found == pytest.approx(sum(rates[: delay + 1]) / sum(rates), rel=1e-12)
    assert found == pytest.approx(share, abs=5e-4)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("spec", "updates_on_version_0"),
    [("0", 1), ("3", 4), ("100", 12), ("ramp:5", 1), ("ramp:5:4", 1), ("block:3", 3), ("block:3:1", 6), ("reuse:5", 5)],
)
def test_the_share_ahead_of_a_run_is_that_of_the_updates_on_version_0(spec, updates_on_version_0):
    rates = [0.1 * (update + 1) for update in range(12)]
    found = forecast_of(spec, rates)
    assert found.share == pytest.approx(sum(rates[:updates_on_version_0]) / sum(rates))
    assert found.mostly_offline == (found.share > 0.5)


@pytest.mark.unit
def test_groups_count_by_their_own_version_and_an_update_by_the_step_it_took():
    def record(rate, scale=1.0, skipped=0.0):
        return {
            "optimizer/learning_rate": rate,
            "optimizer/learning_rate_scale": scale,
            "optimizer/skipped": skipped,
        }

    records = [record(0.3), record(0.2, scale=0.5), record(0.9, skipped=1.0), record(0.4)]
    assert [applied_rate(each) for each in records] == [0.3, 0.1, 0.0, 0.4]
    used = [[GroupRef(0, 0), GroupRef(0, 1)], [GroupRef(0, 0), GroupRef(1, 0)], [GroupRef(0, 1)] * 2, [GroupRef(1, 0)] * 2]
    mass = mass_of_run(used, {0: 0, 1: 1}, records)
    assert mass.total == pytest.approx(0.3 + 0.1 + 0.4)
    assert mass.share == pytest.approx((0.3 + 0.1 / 2) / 0.8)
    assert RateMass().share is None


@pytest.mark.unit
def test_one_synchronous_update_on_version_0_is_no_offline_training():
    mass = RateMass()
    mass.add(0, 1.0, [0, 0])
    assert (mass.share, mass.mostly_offline) == (1.0, False)
    mass.add(1, 0.5, [0, 0])
    assert mass.mostly_offline
    mass.add(2, 1.5, [2, 2])
    assert (mass.share, mass.mostly_offline) == (0.5, False)


@pytest.mark.unit
def test_an_update_logs_the_share_so_far():
    rule = Plain()
    updater = make_updater(rule, "optimizer.warmup_updates=3")
    batches = [groups(), groups(), groups()]
    for group in (*batches[0], batches[1][0]):
        for row in group:
            row.policy_version = 0
    shares = []
    for update, (batch, scale, skips) in enumerate(zip(batches, (1.0, 0.5, 1.0), (False, False, True), strict=True), start=6):
        rule.scale, rule.skips = scale, skips
        metrics = updater.run(batch, update)
        assert metrics["delay/version_0_share"] == (1.0, 0.5, 0.0)[update - 6]
        shares.append(metrics["delay/version_0_rate_share_so_far"])
    assert shares == pytest.approx([1.0, (1 + 0.25) / 1.5, (1 + 0.25) / 1.5])
    assert updater.rate_mass.total == pytest.approx(1.5 * 0.05)


@pytest.mark.unit
def test_no_share_is_logged_before_the_first_step():
    rule = Plain()
    rule.skips = True
    assert SHARE not in make_updater(rule).run(groups(), 6)


@pytest.mark.unit
def test_the_warning_names_share_and_cure():
    assert warning(0.929, "256", 400).startswith(
        "92.9% of the learning rate, summed over updates, falls on rollouts of version 0 (--delay 256)"
    )
    assert "use --delay ramp:256, which reaches the delay 256 at update 512 while" in warning(0.929, "256", 400)
    assert "use --delay ramp:3, which reaches the delay 3 at update 6 while" in warning(0.929, "fixed:3", 400)
    for spec in ("length:28", "inflight:3", "ramp:64", "block:8", "unknown:3"):  # no ramp follows from a clock, or a ramp
        assert "ramp:" not in warning(0.7, spec, 400).replace(f"--delay {spec}", "")
        assert warning(0.7, spec, 400).endswith("or give a shorter delay, so that later versions make most of the rollouts")


@pytest.mark.unit
def test_a_trial_of_a_few_updates_is_sent_to_no_other_delay():
    assert warning(0.9, "64", 29).endswith("(--delay 64): 29 updates show that everything runs, and nothing about staleness")
    assert "use --delay ramp:64" in warning(0.9, "64", 30)


@pytest.mark.unit
@pytest.mark.parametrize(("updates", "level"), [(29, "INFO"), (30, "WARNING")])
def test_what_may_be_a_measurement_is_warned_of(updates, level, caplog):
    caplog.set_level("INFO", logger="gmc")
    OfflineWarning(small_settings("delay=64", f"train.updates={updates}")).before(updates)
    assert [record.levelname for record in caplog.records if "falls on rollouts of version 0" in record.getMessage()] == [level]


def trained(path, delay, updates, *more):
    settings = small_settings(f"delay={delay}", "estimator=gmc", "rollout.max_tokens=8", f"train.updates={updates}", *more)
    return train_run(path, settings)


def status_of(path):
    console = Console(width=400, file=io.StringIO())
    console.print(screen(overview(RunDirectory.open(path))))
    return console.file.getvalue()


@pytest.mark.train
def test_a_mostly_offline_run_says_so_once_and_carries_its_share_everywhere(tmp_path, caplog):
    path = tmp_path / "run"
    caplog.set_level("INFO", logger="gmc")
    result = trained(path, "2", 4, "train.publish_every=2")
    share = sum(cosine(4)[:3]) / sum(cosine(4))
    assert caplog.text.count("of the learning rate, summed over updates, falls on rollouts of version 0") == 1
    assert "(--delay 2): 4 updates show that everything runs, and nothing about staleness" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING" and "version 0" in record.getMessage()]
    assert result["version_0_share"] == pytest.approx(share)
    assert metrics_of(path)[-1][SHARE] == result["version_0_share"]
    assert f"{share:.1%} of the learning rate" in status_of(path)
    shares = {candidate.version: candidate.version_0_share for candidate in run_candidates(RunDirectory.open(path), "all")}
    assert shares == {2: 1.0, 4: result["version_0_share"]}
    assert model_candidate("embedded").version_0_share is None


@pytest.mark.train
@pytest.mark.parametrize("delay", ["ramp:2", "0"])
def test_a_run_in_steady_state_does_not(delay, tmp_path, caplog):
    constant = "optimizer.schedule=constant"
    assert trained(tmp_path / "run", delay, 3, constant)["version_0_share"] == pytest.approx(1 / 3)
    assert "falls on rollouts of version 0" not in caplog.text + status_of(tmp_path / "run")


@pytest.mark.train
def test_a_run_whose_delays_are_not_known_ahead_says_so_at_its_end(tmp_path, caplog):
    caplog.set_level("INFO", logger="gmc")
    trained(tmp_path / "run", "length:1000", 3)
    assert caplog.text.count("100.0% of the learning rate, summed over updates, falls on rollouts of version 0") == 1


@pytest.mark.train
def test_a_reused_batch_is_scored_anew_by_each_version_that_trains_on_it(tmp_path):
    trained(tmp_path / "run", "reuse:3", 3, "rollout.max_tokens=40", "optimizer.schedule=constant")
    spreads = [record["ratio/log_rho_std"] for record in metrics_of(tmp_path / "run")]
    assert spreads[0] == 0
    assert 0 < spreads[1] < spreads[2]
