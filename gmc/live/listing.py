"""The runs below a folder, each in one line: what `gmc runs` prints. Imports neither torch nor pyarrow."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gmc.config.layers import flatten
from gmc.errors import GmcError
from gmc.live.ending import has_ended
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RUN_FILE, RunDirectory
from gmc.store.saved_settings import read_run_settings

SWEEP_RUNS, SWEEP_ROLLOUTS = "runs", "rollouts"
"""Folders of a sweep: its runs, and the version-0 rollouts that several of them start from, which are no runs of their own."""
REWARD = "reward/mean"
WINDOW = 50
"""Updates whose mean reward is shown, the last ones."""

SHOWN_OR_IDLE = {"train.updates", "rollout.batches"}
"""Settings that tell no run from another below its line: they stand in it, or training does not ask them."""

DEEPEST = 4
"""Folders below the first that are looked into."""


def find_runs(folder: Path) -> list[Path]:
    """Run directories in `folder` and below, in the order of names. What lies inside a run is not looked into, nor the
    shared rollouts of a sweep."""
    return sorted(_walk(folder, DEEPEST))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        is_run = (folder / RUN_FILE).is_file()
        below = (
            []
            if is_run or not depth
            else [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        )
    except PermissionError:
        return
    if is_run:
        yield folder
    elif depth:
        is_sweep = {SWEEP_RUNS, SWEEP_ROLLOUTS} <= {path.name for path in below}
        for path in below:
            if is_sweep and path.name == SWEEP_ROLLOUTS:
                continue
            yield from _walk(path, depth - 1)


def describe_run(path: Path) -> dict[str, Any]:
    """One run: rule, delay, updates made and planned, mean reward of the last updates, age in seconds and state.

    state: "finished", "working" (somebody holds it), "sampled" (rollouts alone), "stopped", "empty" (a command failed before
    it made anything), or "damaged" with the error. settings: flat, by dotted key.
    """
    try:
        run = RunDirectory.open(path)
        settings = read_run_settings(run.settings("train")) if run.settings("train").is_file() else {}
        rewards = [record[REWARD] for record in read_metrics(run.metrics) if isinstance(record.get(REWARD), int | float)]
        holder = run.holder()
    except GmcError as error:
        return {"run": str(path), "state": "damaged", "error": str(error)}
    planned = settings.get("train", {}).get("updates")
    last = rewards[-WINDOW:]
    return {
        "run": str(path),
        "rule": settings.get("estimator", {}).get("name"),
        "delay": settings.get("delay"),
        "updates": len(rewards),
        "planned_updates": planned,
        "reward": sum(last) / len(last) if last else None,
        "rewards": rewards,
        "settings": dict(flatten(settings)),
        "age_seconds": time.time() - _newest(run),
        "state": _state(run, len(rewards), planned, holder),
    }


def differing(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By run, the settings that tell it from others of its folder with the same rule, delay and seed; {} where none does."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in found:
        if run.get("settings"):
            key = (Path(run["run"]).parent, run["rule"], run["delay"], run["settings"].get("seed"))
            alike.setdefault(key, []).append(run)
    told: dict[str, dict[str, Any]] = {}
    for runs in alike.values():
        trees = [run["settings"] for run in runs]
        keys = [key for key in trees[0] if key not in SHOWN_OR_IDLE and len({str(tree.get(key)) for tree in trees}) > 1]
        told |= {run["run"]: {key: run["settings"].get(key) for key in keys} for run in runs}
    return told


def _state(run: RunDirectory, updates: int, planned: int | None, holder: str | None) -> str:
    if holder is not None:
        return "working"
    if not updates and not (run.rollouts.is_dir() and any(run.rollouts.iterdir())):
        return "empty"
    if planned is None:
        return "sampled"
    return "finished" if updates >= planned or has_ended(run) else "stopped"


def _newest(run: RunDirectory) -> float:
    paths = (run.metrics, run.rollouts, run.path / RUN_FILE)
    return max(path.stat().st_mtime for path in paths if path.exists())
