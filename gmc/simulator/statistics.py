"""Running statistics of delays and of how they depend on length, in memory that does not grow with the run."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
LENGTH_EDGES: NDArray[np.float64] = 2.0 ** (np.arange(65) / 2)
"""Edges of the length bins in tokens: two bins an octave, so that one run can be laid beside another."""
_BINS = len(LENGTH_EDGES) - 1

Counts = NDArray[np.int64]


def quantile(counts: Counts, share: float) -> int:
    """Smallest whole value that at least this share does not exceed; counts: how often 0, 1, … occur."""
    cumulative = np.cumsum(counts)
    return int(np.searchsorted(cumulative, share * cumulative[-1] * (1 - 1e-12)))


def moment(counts: Counts, order: int) -> float:
    """Mean of value ** order; counts as in `quantile`."""
    return float(counts @ np.arange(len(counts), dtype=np.float64) ** order / counts.sum())


def quantiles(counts: Counts) -> dict[str, int]:
    """`QUANTILES` by name."""
    return {f"{share:g}": quantile(counts, share) for share in QUANTILES}


class DelayStatistics:
    """Counts of trained responses by delay (updates) and length (tokens).

    `counts_LD` has a row for each length bin (see `LENGTH_EDGES`; an empty response counts in the first) and a column for each
    whole delay. Moments and quantiles of the delay are exact, as is the correlation with length.
    """

    def __init__(self) -> None:
        self.counts_LD: Counts = np.zeros((_BINS, 1), dtype=np.int64)
        self._sums = np.zeros(5)  # of length, length², delay, delay², length · delay

    def add(self, delays: Counts, lengths: Counts) -> None:
        """Count responses: their delays and lengths, two flat arrays of one size."""
        if (width := int(delays.max()) + 1) > self.counts_LD.shape[1]:
            grown = np.zeros((_BINS, max(width, 2 * self.counts_LD.shape[1])), dtype=np.int64)
            grown[:, : self.counts_LD.shape[1]] = self.counts_LD
            self.counts_LD = grown
        rows = np.maximum(np.searchsorted(LENGTH_EDGES, lengths, side="right") - 1, 0)
        cells = rows * self.counts_LD.shape[1] + delays
        self.counts_LD += np.bincount(cells, minlength=self.counts_LD.size).reshape(self.counts_LD.shape)
        x, y = lengths.astype(np.float64), delays.astype(np.float64)
        self._sums += (x.sum(), x @ x, y.sum(), y @ y, x @ y)

    @property
    def responses(self) -> int:
        return int(self.counts_LD.sum())

    @property
    def counts(self) -> Counts:
        """Number of responses at delay 0, 1, …, up to the largest seen."""
        counts = self.counts_LD.sum(axis=0)
        return np.asarray(np.trim_zeros(counts, "b"))

    @property
    def mean(self) -> float:
        return self.moment(1)

    def moment(self, order: int) -> float:
        """Mean of delay ** order over trained responses."""
        return moment(self.counts, order)

    def quantile(self, share: float) -> int:
        """Smallest delay that at least this share of responses does not exceed."""
        return quantile(self.counts, share)

    def binned(self, most: int) -> tuple[int, Counts]:
        """Counts by delay in at most `most` bins of equal width: that width (in updates), and the counts."""
        counts = self.counts
        width = -(-len(counts) // most)
        return width, np.pad(counts, (0, -len(counts) % width)).reshape(-1, width).sum(axis=1)

    @property
    def length_correlation(self) -> float | None:
        """Pearson correlation of response length and delay; None when one of them is constant."""
        count = self.responses
        x, xx, y, yy, xy = self._sums / count
        spread = (xx - x * x) * (yy - y * y)
        if xx - x * x <= 1e-12 * max(xx, 1) or yy - y * y <= 1e-12 * max(yy, 1):
            return None
        return float((xy - x * y) / np.sqrt(spread))

    def summary(self) -> dict[str, Any]:
        """Delay statistics by name, in updates."""
        return {
            "responses": self.responses,
            "mean": self.mean,
            "max": len(self.counts) - 1,
            "quantiles": quantiles(self.counts),
            "fourth_moment": self.moment(4),
            "length_correlation": self.length_correlation,
        }


class LengthStatistics:
    """Number, mean and quantiles of lengths, from whole counts by length (tokens)."""

    def __init__(self) -> None:
        self._counts: Counts = np.zeros(0, dtype=np.int64)

    def add(self, lengths: Counts) -> None:
        counts = np.bincount(lengths)
        if len(counts) > len(self._counts):
            self._counts, counts = counts, self._counts
        self._counts[: len(counts)] += counts

    def summary(self) -> dict[str, Any]:
        total = int(self._counts.sum())
        if not total:
            return {"responses": 0, "mean": None, "quantiles": {}}
        return {"responses": total, "mean": moment(self._counts, 1), "quantiles": quantiles(self._counts)}
