"""Scores over the checkpoints of a run: a table file and a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gmc.evaluation.results import Result
from gmc.evaluation.rewarded import Rewarded
from gmc.store.files import atomic_path, write_json


def curve_record(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One entry a policy version, in order of versions: the scores with their intervals."""
    ordered = sorted(results, key=lambda result: int(result.record["model"]["version"]))
    return [
        {"version": result.record["model"]["version"], "result": result.scores_path.name, "scores": result.record["scores"]}
        for result in ordered
    ]


def write_curve(results: Sequence[Result], directory: Path) -> tuple[Path, Path]:
    """Write curve-BENCHMARK.json and curve-BENCHMARK.png for results of one benchmark; returns both paths."""
    benchmark = results[0].record["benchmark"]
    points = curve_record(results)
    table, plot = directory / f"curve-{benchmark}.json", directory / f"curve-{benchmark}.png"
    write_json(table, {"benchmark": benchmark, "problems": results[0].record["problems"], "points": points})
    with atomic_path(plot) as temporary:
        _plot(benchmark, points, results[0].rewarded, temporary)
    return table, plot


def _plot(benchmark: str, points: list[dict[str, Any]], rewarded: Rewarded, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    versions = [point["version"] for point in points]
    for name in points[0]["scores"]:
        scores = [point["scores"].get(name) for point in points]
        if any(score is None for score in scores):
            continue
        scale = 100 if rewarded.binary else 1
        (line,) = axes.plot(versions, [scale * score["value"] for score in scores], marker="o", markersize=3, label=name)
        low, high = ([scale * score[end] for score in scores] for end in ("low", "high"))
        axes.fill_between(versions, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    problems = points[0]["scores"][next(iter(points[0]["scores"]))]["problems"]
    unit = "correct, %" if rewarded.binary else "mean reward"
    axes.set(xlabel="policy version (updates)", ylabel=unit, title=f"{benchmark} ({problems} problems, 95 % intervals)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="png", dpi=150)
