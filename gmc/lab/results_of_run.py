"""What a run directory says about its run, small enough to keep: scores, curve, summary of training, windows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gmc.evaluation.results import Result, read_result
from gmc.evaluation.samples import GREEDY
from gmc.evaluation.scores import problem_scores
from gmc.store.files import entries, strict_json
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory

WINDOWS = 20
LAST = 50
"""Updates at the end over which the training reward is averaged."""
WINDOWED = (
    "reward/mean",
    "delay/mean",
    "ratio/ess_share",
    "ratio/removed_mass",
    "ratio/log_rho_std",
    "optimizer/gradient_norm",
    "weight/zero_share",
    "response/length_mean",
)
DIGITS = 5


@dataclass(frozen=True)
class Collected:
    """Fields as in `RunRecord`. updates: made."""

    updates: int
    scores: dict[str, dict[str, dict[str, Any]]]
    curve: list[dict[str, Any]]
    training: dict[str, Any]
    windows: dict[str, list[float | None]]
    seconds: dict[str, float] = field(default_factory=dict)


def collect_run(path: Path, *, clip_norm: float, base: Sequence[Result] = ()) -> Collected:
    """Everything that a report needs of one run. base: results of the initial model where the run holds none of them.

    Raises `UsageError` or `DataError` for a run that is not there or damaged.
    """
    run = RunDirectory.open(path)
    metrics = read_metrics(run.metrics)
    results = _results(run)
    return Collected(
        updates=len(metrics),
        scores=_final_scores(results),
        curve=_curve([*results, *base]),
        training=_training(metrics, clip_norm) if metrics else {},
        windows=_windows(metrics),
        seconds={"training": _rounded(math.fsum(record.get("time/seconds") or 0.0 for record in metrics))},
    )


def _results(run: RunDirectory) -> list[Result]:
    return [read_result(path) for path in entries(run.evals, "*.json") if not path.name.startswith("curve-")]


def way_of(result: Result) -> str:
    """What must agree for two results to be comparable: benchmark, problems, way of asking."""
    record = result.record
    return strict_json([record["benchmark"], record["problems"]["content_hash"], record["spec"]])


def version_of(result: Result) -> int:
    """The policy version; the initial model is version 0."""
    version = result.record["model"]["version"]
    return 0 if version is None else int(version)


def _final_scores(results: Sequence[Result]) -> dict[str, dict[str, dict[str, Any]]]:
    """By benchmark: the newest policy's scores, of the way of asking with most samples where there are several."""
    best: dict[str, Result] = {}
    for result in results:
        if version_of(result) == 0:
            continue
        name = result.record["benchmark"]
        if name not in best or _weight(result) > _weight(best[name]):
            best[name] = result
    return {name: _scores(result) for name, result in best.items()}


def _weight(result: Result) -> tuple[int, int]:
    spec, problems = result.record["spec"], result.record["problems"]["count"]
    return version_of(result), problems * (spec["samples"] + spec["greedy"])


def _scores(result: Result) -> dict[str, dict[str, Any]]:
    scored = problem_scores(result.samples(), result.record["spec"]["pass_k"])
    found: dict[str, dict[str, Any]] = {}
    for name, value in result.estimates().items():
        found[name] = {
            "value": value.value,
            "low": value.low,
            "high": value.high,
            "samples": value.samples,
            "binary": result.rewarded.is_binary(name),
        }
        if name == GREEDY or name.startswith("avg@"):  # the others follow from the samples behind these, or need all of them
            found[name]["problem_sums"] = _problem_sums((scored.scores[name] * scored.samples[name]).tolist())
    return found


def _curve(results: Sequence[Result]) -> list[dict[str, Any]]:
    """By benchmark, the way of asking under which most versions were evaluated, if those are two or more."""
    ways: dict[str, dict[str, dict[int, Result]]] = {}
    for result in results:
        versions = ways.setdefault(result.record["benchmark"], {}).setdefault(way_of(result), {})
        versions[version_of(result)] = result
    points = []
    for name, by_way in ways.items():
        versions = max(by_way.values(), key=len)
        for version in sorted(versions) if len(versions) > 1 else []:
            scores = {key: value.value for key, value in versions[version].estimates().items()}
            points.append({"version": version, "benchmark": name, "scores": scores})
    return points


def _training(metrics: Sequence[Mapping[str, Any]], clip_norm: float) -> dict[str, Any]:
    def column(name: str) -> list[float]:
        return [math.nan if record.get(name) is None else record[name] for record in metrics]

    norms = np.array(column("optimizer/gradient_norm"))
    found = {
        "updates": len(metrics),
        "reward_last": np.mean(column("reward/mean")[-LAST:]),
        "delay_mean": np.mean(column("delay/mean")),
        "delay_max": np.max(column("delay/max")),
        "ess_share": np.mean(column("ratio/ess_share")),
        "removed_mass": np.mean(column("ratio/removed_mass")),
        "log_rho_std": np.mean(column("ratio/log_rho_std")),
        "zero_weight_share": np.mean(column("weight/zero_share")),
        "gradient_norm": np.mean(norms),
        "gradient_norm_max": np.max(norms),
        "gradient_clipped_share": np.mean(norms > clip_norm),
        "skipped_share": np.mean(column("optimizer/skipped")),
        "length_mean": np.mean(column("response/length_mean")),
        "version_0_share": column("delay/version_0_rate_share_so_far")[-1],
    }
    return {name: value if isinstance(value, int) else _rounded(float(value)) for name, value in found.items()}


def _windows(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Means of `WINDOWED` over stretches of nearly equal length; "update" counts the updates made by each one's end."""
    stretches = [each for each in np.array_split(np.arange(len(metrics)), WINDOWS) if len(each)]
    windows: dict[str, list[float | None]] = {"update": [int(each[-1]) + 1 for each in stretches]}
    for name in WINDOWED:
        windows[name] = [_mean([metrics[index].get(name) for index in each]) for each in stretches]
    return windows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _rounded(math.fsum(known) / len(known)) if known else None


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _problem_sums(sums: Sequence[float]) -> str | list[float]:
    """Sums over a problem's samples; a text of one digit a problem where all of them are 0 … 9, as 0/1 rewards give them."""
    if all(abs(value - round(value)) < 1e-9 and 0 <= round(value) <= 9 for value in sums):
        return "".join(str(round(value)) for value in sums)
    return [_rounded(value) for value in sums]
