"""Pictures: of one delay distribution (a histogram, and delay against response length), and of clusters side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
from numpy.typing import NDArray

from gmc.errors import UsageError
from gmc.simulator.cluster_report import ClusterReport
from gmc.simulator.statistics import LENGTH_EDGES, DelayStatistics, moment, quantile
from gmc.store.files import atomic_path

_FORMATS = (".png", ".svg")
_MOST_BARS = 80


def check_plot_path(path: Path) -> None:
    """Raise `UsageError` unless the file's ending is one that can be drawn."""
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"--plot {path}: the name must end in .png or .svg")


def save_plot(path: Path, delays: DelayStatistics, title: str) -> None:
    """Draw trained responses by delay (left) and delay by length (right) to a .png or .svg file."""
    check_plot_path(path)
    figure, (left, right) = _two_panels(title)
    _histogram(left, delays)
    _delay_by_length(right, delays)
    _save(figure, path)


def save_comparison(path: Path, reports: Sequence[ClusterReport], best: Sequence[bool], title: str) -> None:
    """Draw several clusters: updates an hour against mean delay (left) and how delays are distributed (right).

    best: which of them no other one beats, as `frontier` says. The file ends in .png or .svg.
    """
    check_plot_path(path)
    figure, (left, right) = _two_panels(title)
    _speed_against_delay(left, reports, best)
    _cumulative(right, reports)
    _save(figure, path)


def _two_panels(title: str) -> tuple[Figure, tuple[Axes, Axes]]:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    return figure, (left, right)


def _save(figure: Figure, path: Path) -> None:
    # A fixed salt and no date: the same simulation draws the same bytes.
    with atomic_path(path) as temporary, rc_context({"svg.hashsalt": "gmc"}):
        kind = path.suffix.lower()[1:]
        figure.savefig(temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def _speed_against_delay(axes: Axes, reports: Sequence[ClusterReport], best: Sequence[bool]) -> None:
    for report, on_frontier, color in zip(reports, best, _colors(reports), strict=True):
        marker, size = ("*", 14) if on_frontier else ("o", 7)
        axes.plot(report.lags.delays.mean, report.updates_per_hour, marker, color=color, markersize=size, alpha=0.8)
    axes.margins(x=0.1, y=0.1)
    axes.set_xlabel("mean delay (updates)")
    axes.set_ylabel("updates an hour")
    axes.set_title("★ no other has as few workers, as little delay and as many updates", fontsize=10)


def _cumulative(axes: Axes, reports: Sequence[ClusterReport]) -> None:
    for report, color in zip(reports, _colors(reports), strict=True):
        counts = report.lags.delays.counts
        axes.step(np.arange(len(counts)), np.cumsum(counts) / counts.sum(), where="post", color=color, label=_name(report))
    axes.set_xlabel("delay (updates)")
    axes.set_ylabel("share of trained responses at most this old")
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def _colors(reports: Sequence[ClusterReport]) -> NDArray[np.float64]:
    """One color a cluster, the same in both panels."""
    return np.asarray(colormaps["viridis"](np.linspace(0, 0.95, len(reports))))


def _name(report: ClusterReport) -> str:
    return f"{report.settings.workers} workers, {report.settings.max_ahead} ahead"


def _histogram(axes: Axes, delays: DelayStatistics) -> None:
    width, counts = delays.binned(_MOST_BARS)
    lefts = np.arange(len(counts)) * width
    axes.bar(lefts - 0.5, counts / counts.sum(), width=width, align="edge", color="tab:blue", alpha=0.8)
    axes.axvline(delays.mean, color="tab:red", label=f"mean {delays.mean:.1f}")
    axes.axvline(delays.quantile(0.95), color="tab:orange", linestyle="--", label=f"95 % quantile {delays.quantile(0.95)}")
    axes.set_xlabel("delay (updates)")
    axes.set_ylabel("share of trained responses")
    axes.legend(frameon=False)


def _delay_by_length(axes: Axes, delays: DelayStatistics) -> None:
    counts = delays.counts_LD[:, : len(delays.counts)]
    rows = np.flatnonzero(counts.sum(axis=1))
    centers = np.sqrt(LENGTH_EDGES[rows] * LENGTH_EDGES[rows + 1])
    quantiles = np.array([[quantile(counts[row], share) for share in (0.05, 0.5, 0.95)] for row in rows])
    means = [moment(counts[row], 1) for row in rows]
    axes.fill_between(centers, quantiles[:, 0], quantiles[:, 2], color="tab:blue", alpha=0.2, label="5 % to 95 %")
    axes.plot(centers, quantiles[:, 1], color="tab:blue", label="median")
    axes.plot(centers, means, color="tab:red", linestyle="--", label="mean")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.35 * max(1.0, quantiles.max()))  # room for the legend above the band
    axes.set_xlabel("response length (tokens)")
    axes.set_ylabel("delay (updates)")
    correlation = delays.length_correlation
    axes.set_title("delay is constant" if correlation is None else f"correlation of length and delay {correlation:.2f}")
    axes.legend(frameon=False, loc="upper left")
