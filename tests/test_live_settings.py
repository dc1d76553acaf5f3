"""A follower takes its settings from the run's trainer, but for its own machine."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.following import follower_settings
from gmc.errors import GmcError, UsageError
from gmc.resolving.resolve import resolve_settings
from gmc.store.saved_settings import write_run_settings


def _trained(path: Path, *assignments: str) -> None:
    """What `gmc train` leaves of its settings."""
    settings = resolve_settings(assignments=assignments)
    write_run_settings(path / "settings" / "train.toml", settings, {})


@pytest.mark.unit
def test_a_follower_has_the_trainers_settings_and_its_own_engine(tmp_path: Path) -> None:
    _trained(tmp_path, "delay=live", "rollout.prompts=5", "seed=7", "estimator.epsilon=0.3", "live.max_ahead=2")
    found = follower_settings(tmp_path, "vllm", ["model.device=cpu", "live.lease_seconds=9"], {"seed": None, "resume": False})
    assert (found.rollout.prompts, found.seed, found.estimator["epsilon"], found.live.max_ahead) == (5, 7, 0.3, 2)
    assert (found.rollout.engine, found.model.device, found.live.lease_seconds) == ("vllm", "cpu", 9)


@pytest.mark.unit
@pytest.mark.parametrize("flag", [{"seed": 3}, {"prompts": 4}, {"resume": True}, {"model": "embedded"}])
def test_flags_that_the_trainer_decides_are_refused(tmp_path: Path, flag: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"--follow with --{next(iter(flag))}"):
        follower_settings(tmp_path, None, [], flag)


@pytest.mark.unit
@pytest.mark.parametrize("assignment", ["rollout.group_size=4", "seed=3", "problems.template=chat-v1", "model.source=other"])
def test_settings_that_the_trainer_decides_are_refused(tmp_path: Path, assignment: str) -> None:
    _trained(tmp_path, "delay=live")
    with pytest.raises(UsageError, match="which the run's trainer decides"):
        follower_settings(tmp_path, None, [assignment], {})


@pytest.mark.unit
def test_a_run_that_is_not_live_is_refused(tmp_path: Path) -> None:
    _trained(tmp_path, "delay=16")
    with pytest.raises(UsageError, match="--delay 16, not --live"):
        follower_settings(tmp_path, None, [], {})


@pytest.mark.unit
def test_a_follower_without_a_trainer_gives_up_and_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GmcError, match=r"no trainer came .* gmc train --live"):
        follower_settings(tmp_path, None, ["live.patience_seconds=0.1"], {})


@pytest.mark.train
def test_live_and_a_delay_exclude_each_other(tmp_path: Path) -> None:
    arguments = ["train", "--live", "--delay", "4", "--dry-run", "--run", str(tmp_path / "run")]
    assert CliRunner().invoke(app, arguments).exit_code == 2
    result = CliRunner().invoke(app, ["train", "--live", "--dry-run", "--json", "--run", str(tmp_path / "run")])
    assert '"delay": "live"' in result.stdout


@pytest.mark.unit
def test_every_flag_that_the_trainer_decides_is_refused(tmp_path: Path) -> None:
    text = ("--model", "--problems", "--question-field", "--answer-field", "--logprobs", "--recipe")
    numbers = ("--batches", "--prompts", "--group-size", "--temperature", "--max-tokens", "--seed")
    for flag in [[name, "x"] for name in text] + [[name, "3"] for name in numbers] + [["--resume"], ["--overwrite"]]:
        result = CliRunner().invoke(app, ["rollout", "--follow", "--run", str(tmp_path), *flag])
        assert result.exit_code == 2
        assert f"--follow with {flag[0]}:" in result.stderr
