"""Short runs of the real training path for tests, in process."""

import json
from pathlib import Path
from typing import Any

import pytest

from gmc.config import RunSettings
from gmc.resolving.resolve import resolve_settings
from gmc.training import run
from gmc.training.signals import stop_on_signals
from gmc.training.update import Updater

TIMINGS = ("time/",)


def small_settings(*assignments: str, **flags: Any) -> RunSettings:
    """4 prompts × 4 responses of at most 40 tokens on the embedded model, at a rate that moves it within few updates."""
    base = ["rollout.prompts=4", "rollout.group_size=4", "rollout.max_tokens=40", "optimizer.learning_rate=1e-3"]
    return resolve_settings(flags=flags, assignments=[*base, *assignments])


def train_run(path: Path, settings: RunSettings, *, resume: bool = False, rollouts_from: Path | None = None) -> dict[str, Any]:
    """`gmc.training.run.train_run`, stopping on signals as the command does; returns its record."""
    with stop_on_signals() as stop:
        result = run.train_run(path, settings, resume=resume, rollouts_from=rollouts_from, stopping=lambda: bool(stop))
    return result.record()


def train_with_a_power_cut(path: Path, settings: RunSettings, *, update: int) -> None:
    """A run that dies at the start of this update and is resumed to its end."""
    whole = Updater.run

    def crash(self: Updater, groups: Any, number: int) -> Any:
        if number == update:
            raise OSError("power cut")
        return whole(self, groups, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updater, "run", crash)
        with pytest.raises(OSError, match="power cut"):
            train_run(path, settings)
    train_run(path, settings, resume=True)


def assert_resumes_bit_for_bit(folder: Path, settings: RunSettings, *, update: int) -> tuple[Path, Path]:
    """Train once whole and once with a power cut at this update: weights and metrics are the same. Returns both runs."""
    whole, parts = folder / "whole", folder / "parts"
    train_run(whole, settings)
    train_with_a_power_cut(parts, settings, update=update)
    assert metrics_of(parts) == metrics_of(whole)
    assert weights_of(parts) == weights_of(whole)
    return whole, parts


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """Every update's metrics without the timings."""
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if not key.startswith(TIMINGS)} for record in records]


def weights_of(path: Path) -> bytes:
    """The final published weights, as bytes."""
    return (sorted((path / "policies").glob("v*"))[-1] / "model.safetensors").read_bytes()
