"""Arms of an experiment: runs that differ in nothing but their seed, and what their scores come to over seeds.

A score of one run has an interval over problems. Whether a rule is better than another is a question about training runs, so
here the unit is the run: the interval is Student's over the seeds of an arm, as wide as few seeds make it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gmc.config.layers import CHOSEN, DEFAULT, RUN
from gmc.environments.build import is_binary
from gmc.errors import DataError, UsageError
from gmc.evaluation.results import Result, read_result
from gmc.evaluation.statistics import LEVEL, FloatArray, seed_interval
from gmc.store.files import entries, strict_json
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import SavedSettings, read_saved_settings

WITHOUT_EFFECT = {
    *("model.device", "rollout.batches", "rollout.servers", "rollout.weight_transfer", "rollout.gpu_memory_share"),
    *("train.eval_every", "train.eval_problems", "train.eval_limit", "train.trackers"),
    *("train.checkpoint_every", "train.keep_checkpoints", "train.publish_every"),
    *("live.lease_seconds", "live.patience_seconds"),
}
"""Settings that make no arm: where a run was trained (the dtype of its products does), what only looks on or is kept, and how
much `gmc rollout` made ahead. Those of `gmc eval` are with its results."""
WINDOW = 50
"""Updates over which training rewards are averaged, fewer where a run has fewer."""


@dataclass(frozen=True)
class TrainedRun:
    """One run. settings: by dotted key, seed and device left out; said: those that a person chose, None for a run of gmc 0.1,
    whose settings are incomplete; rewards_N: mean reward of each update done; results: the newest policy's, one for each way
    of asking a benchmark."""

    path: Path
    seed: int
    settings: Mapping[str, Any]
    said: frozenset[str] | None
    rewards_N: FloatArray
    results: Mapping[str, Result]

    @property
    def binary(self) -> bool:
        """Whether its rewards are shares of right answers, as far as its settings tell."""
        return is_binary(self.settings.get("reward.parts", ("math",)), self.settings.get("rollout.environment", "single"))

    def final_reward(self, window: int) -> float:
        """Mean reward of the last `window` updates."""
        return float(self.rewards_N[-window:].mean())

    def peak_reward(self, window: int) -> float:
        """The highest mean reward of any `window` updates in a row."""
        return float(running_mean(self.rewards_N, window).max())


@dataclass(frozen=True)
class Arm:
    """Runs with the same settings. differing: the settings in which arms differ, by short name, with this arm's values."""

    differing: Mapping[str, str]
    runs: tuple[TrainedRun, ...]

    @property
    def label(self) -> str:
        """The differing settings in words."""
        return ", ".join(f"{name} {value}" for name, value in self.differing.items() if value) or "all runs"


@dataclass(frozen=True)
class OverSeeds:
    """Mean over the seeds of an arm with its 95 % interval (None for one seed, and for equal values)."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """Summarize one value a run."""
    low, high = seed_interval(values) or (None, None)
    return OverSeeds(float(np.mean(values)), low, high, len(values))


def common_window(arms: Sequence[Arm]) -> int:
    """`WINDOW`, or the updates of the shortest run where it has fewer: one window for all, so that arms can be compared."""
    return min(WINDOW, *(len(run.rewards_N) for arm in arms for run in arm.runs))


def running_mean(rewards_N: FloatArray, window: int) -> FloatArray:
    """Means of `window` updates in a row."""
    means: FloatArray = np.convolve(rewards_N, np.full(window, 1 / window), mode="valid")
    return means


def read_trained_run(path: Path) -> TrainedRun:
    """Read a run's settings, rewards and results. Raises `UsageError` for a run without an update, `DataError` for damage."""
    run = RunDirectory.open(path)
    rewards = [record.get("reward/mean") for record in read_metrics(run.metrics)]
    if not rewards:
        raise UsageError(f"{path}: no update was made here; train it first, or leave it out")
    if None in rewards:
        raise DataError(f"{run.metrics}, line {1 + rewards.index(None)}: no reward/mean; restore the file from a copy")
    saved = read_saved_settings(run.settings("train"))
    settings = {
        key: _plain(value) for key, value in saved.values.items() if key not in WITHOUT_EFFECT and not key.startswith("eval.")
    }
    seed = settings.pop("seed", None)
    if type(seed) is not int:
        raise DataError(f"{run.settings('train')}: damaged (seed is {seed!r}); restore it from a copy, or leave the run out")
    return TrainedRun(path, seed, settings, _said(saved), np.array(rewards), _newest_results(run))


def read_trained_runs(paths: Sequence[Path]) -> tuple[list[TrainedRun], list[Path]]:
    """The runs that made an update, and the paths of the others: runs of rollouts alone, as `runs/*` may name.

    Raises `UsageError` where none made one, and as `read_trained_run`.
    """
    untrained = [path for path in paths if not read_metrics(RunDirectory.open(path).metrics)]
    return [read_trained_run(path) for path in paths if path not in untrained or len(untrained) == len(paths)], untrained


def group_by_arm(runs: Sequence[TrainedRun]) -> list[Arm]:
    """Arms in the order of their labels.

    Raises `UsageError` when two runs of one arm have the same seed, or when only some runs have complete settings.
    """
    old, new = [run for run in runs if run.said is None], [run for run in runs if run.said is not None]
    if old and new:
        raise UsageError(
            f"{old[0].path}: gmc 0.1 did not save every setting, so it cannot be told whether {new[0].path} was trained alike; "
            "compare runs of gmc 0.1 with each other"
        )
    keys = sorted({key for run in runs for key in run.settings})
    differing = [key for key in keys if len({strict_json(run.settings.get(key)) for run in runs}) > 1]
    members: dict[tuple[Any, ...], list[TrainedRun]] = {}
    for run in runs:
        members.setdefault(tuple(run.settings.get(key) for key in differing), []).append(run)
    shown = _shown(differing, list(members.values()))
    arms = []
    for group in members.values():
        by_seed: dict[int, TrainedRun] = {}
        for run in group:
            if run.seed in by_seed:
                raise UsageError(
                    f"{by_seed[run.seed].path} and {run.path} have the same settings and seed {run.seed}; leave one out"
                )
            by_seed[run.seed] = run
        values = {key: group[0].settings.get(key) for key in shown}
        differs = {_short(key): _in_words(value) for key, value in values.items()}
        arms.append(Arm(differs, tuple(by_seed[seed] for seed in sorted(by_seed))))
    return sorted(arms, key=lambda arm: [_sortable(part) for part in arm.label.split()])


def _shown(differing: Sequence[str], groups: Sequence[Sequence[TrainedRun]]) -> list[str]:
    """The settings that name the arms: those that a person chose, if they tell all arms apart, for a rule brings its own."""
    said = [key for key in differing if any(run.said is None or key in run.said for group in groups for run in group)]
    told_apart = {tuple(group[0].settings.get(key) for key in said) for group in groups}
    return said if len(told_apart) == len(groups) else list(differing)


def _said(saved: SavedSettings) -> frozenset[str] | None:
    if saved.origins is None:
        return None
    return frozenset(key for key, origin in saved.origins.items() if origin.removeprefix(RUN) not in {DEFAULT, *CHOSEN})


def ways_of_asking(runs: Sequence[TrainedRun]) -> dict[str, Result]:
    """Every way in which benchmarks were asked, with one result as an example."""
    return {way: result for run in runs for way, result in run.results.items()}


def _newest_results(run: RunDirectory) -> dict[str, Result]:
    newest: dict[str, Result] = {}
    for path in entries(run.evals, "*.json"):
        if path.name.startswith("curve-"):
            continue
        result = read_result(path)
        if result.record["model"]["label"] == "base":
            continue
        way = strict_json([result.record["benchmark"], result.record["problems"]["content_hash"], result.record["spec"]])
        if way not in newest or result.record["model"]["version"] > newest[way].record["model"]["version"]:
            newest[way] = result
    return newest


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _in_words(value: Any) -> str:
    """A setting's value as the name of an arm."""
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return "" if value is None else str(value)


def _short(key: str) -> str:
    return {"estimator.name": "estimator", "train.updates": "updates"}.get(key, key)


def _sortable(word: str) -> tuple[int, float, str]:
    number = word.rstrip(",")
    return (0, float(number), "") if number.replace(".", "", 1).isdecimal() else (1, 0.0, word)


def interval_name(arms: Sequence[Arm]) -> str:
    """What the intervals are, for titles."""
    if all(len(arm.runs) == 1 for arm in arms):
        return "one seed an arm, so no interval"
    return f"mean over seeds ± {100 * LEVEL:.0f} % interval"
