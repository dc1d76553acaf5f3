"""Numbers far beyond sense: refused in one line that says the largest, before anything is made or takes long."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.layers import read_toml
from gmc.delays.fixed import FixedDelay
from gmc.delays.registry import parse_delay
from gmc.delays.version_0 import RateMass, forecast
from gmc.errors import UsageError
from gmc.resolving.resolve import resolve_settings
from gmc.simulator.request import SimulationRequest

pytestmark = pytest.mark.unit

HUGE = "99999999999999999999999"


@pytest.mark.parametrize(
    ("setting", "largest"),
    [
        *((f"{key}=9999999999", "10000000") for key in ("rollout.prompts", "rollout.group_size", "rollout.batches")),
        *((f"{key}=9999999999", "10000000") for key in ("train.updates", "train.eval_limit", "eval.limit")),
        (f"rollout.prompts={HUGE}", "10000000"),
        (f"rollout.max_tokens={HUGE}", "10000000"),
        ("eval.samples=9999999999", "100000"),
        ("model.lora.rank=9999999999", "65536"),
        (f"seed={HUGE}", str(2**63 - 1)),
        ("reward.seconds=1e300", "31536000"),
        ("rollout.environment_seconds=1e300", "31536000"),
        ("live.patience_seconds=1e300", "31536000"),
        ("live.lease_seconds=1e300", "86400"),
    ],
)
def test_a_huge_value_names_its_setting_and_the_largest_allowed(setting, largest):
    with pytest.raises(UsageError) as refusal:
        resolve_settings(assignments=[setting])
    [line] = str(refusal.value).splitlines()
    assert setting.partition("=")[0] in line
    assert f"give at most {largest}" in line


@pytest.mark.parametrize("command", ["train", "rollout"])
def test_a_batch_that_cannot_fit_the_memory_is_refused_before_anything_is_made(tmp_path, command):
    sizes = ["--prompts", "1000000", "--group-size", "1000000"]
    result = CliRunner().invoke(app, [command, "--run", str(tmp_path / "run"), *sizes])
    assert result.exit_code == 2
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert "rollout.prompts = 1,000,000 × rollout.group_size = 1,000,000 × rollout.max_tokens = 64" in line
    assert "of memory; lower one of them" in line
    assert not (tmp_path / "run").exists()


def test_a_simulation_of_too_many_responses_is_refused():
    with pytest.raises(UsageError, match="--group-size 9,999,999,999: 9,999,999,999 responses an update"):
        SimulationRequest(lengths="lognormal:570:0.6", group_size=9_999_999_999)


@pytest.mark.parametrize("path", [Path("/dev/zero"), Path("/dev")])
def test_what_is_no_plain_file_is_no_file_of_settings(path):
    with pytest.raises(UsageError, match=f"{path}: not a plain file"):
        read_toml(path)


def test_a_pipe_is_no_file_of_settings(tmp_path):
    os.mkfifo(tmp_path / "sweep.toml")
    with pytest.raises(UsageError, match=r"sweep\.toml: not a plain file"):
        read_toml(tmp_path / "sweep.toml")


def test_looking_ahead_over_ten_million_updates_takes_no_time():
    started = time.process_time()
    delays = parse_delay("64", prompts=8, group_size=8, seed=0, updates=10_000_000)
    mass = forecast(delays, 8, 8, lambda update: 1.0, 10_000_000)
    assert time.process_time() - started < 5
    assert mass.share == pytest.approx(65 / 10_000_000, abs=1e-5)
    delays = FixedDelay(1_000_000, prompts=8, updates=1_500_000)
    assert delays.first_launches == 1_000_001
    assert forecast(delays, 8, 8, lambda update: 1.0, 1_500_000).share == pytest.approx(2 / 3, abs=2e-5)


@pytest.mark.parametrize("spec", ["0", "1", "7", "30", "ramp:5:3", "block:4", "block:3:2", "reuse:1", "reuse:4"])
@pytest.mark.parametrize("updates", [1, 2, 11, 12])
def test_what_a_delay_knows_of_version_0_is_what_its_replay_shows(spec, updates):
    def model():
        return parse_delay(spec, prompts=3, group_size=2, seed=0, updates=updates)

    replayed, mass, versions = model(), RateMass(), {}
    for update in range(updates):
        while (batch := replayed.next_launch(update)) is not None:
            replayed.launched(batch, update, [[1, 1]] * 3)
            versions[batch] = update
        mass.add(update, 1.0 + update, [versions[group.batch] for group in replayed.take(update)])
    assert forecast(model(), 3, 2, lambda update: 1.0 + update, updates) == mass
