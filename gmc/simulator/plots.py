"""A picture of a delay distribution: a histogram, and delay against response length."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from gmc.errors import UsageError
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
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    _histogram(left, delays)
    _delay_by_length(right, delays)
    # A fixed salt and no date: the same simulation draws the same bytes.
    with atomic_path(path) as temporary, rc_context({"svg.hashsalt": "gmc"}):
        kind = path.suffix.lower()[1:]
        figure.savefig(temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


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
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("response length (tokens)")
    axes.set_ylabel("delay (updates)")
    correlation = delays.length_correlation
    axes.set_title("delay is constant" if correlation is None else f"correlation of length and delay {correlation:.2f}")
    axes.legend(frameon=False, loc="upper left")
