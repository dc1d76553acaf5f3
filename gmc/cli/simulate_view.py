"""What a person sees of a simulated delay: tables and pictures in the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gmc.simulator.cluster_report import ClusterReport
from gmc.simulator.lengths import LengthSource
from gmc.simulator.simulate import Simulation
from gmc.simulator.statistics import LENGTH_EDGES, QUANTILES, DelayStatistics

_BAR = 40
_MOST_ROWS = 16


def delay_tables(spec: str, lengths: LengthSource, result: Simulation) -> list[RenderableType]:
    """Delay statistics, and trained against launched lengths."""
    table = _table("", "")
    table.add_row("lengths from", Text(lengths.note))
    if result.clock is not None:
        table.add_row("clock found", f"C = {result.clock:.4g} updates per 100 tokens")
    _add_delay_rows(table, result.delays)
    if result.waits is not None:
        table.add_row("updates that waited", f"{result.waits / result.updates:.1%}")
    table.add_row("groups still waiting at the end", str(result.waiting))
    bias = _table("", "responses", "mean", "50 %", "95 %", "99 %")
    for name, summary in (("launched", result.launched.summary()), ("trained", result.trained.summary())):
        quantiles = [str(summary["quantiles"][share]) for share in ("0.5", "0.95", "0.99")]
        bias.add_row(name, str(summary["responses"]), f"{summary['mean']:.1f}", *quantiles)
    title = f"--delay {spec}, {result.updates} updates of {result.prompts} × {lengths.group_size} responses"
    return [*_titled(title, table), *_titled("response lengths, in tokens", bias)]


def cluster_tables(report: ClusterReport, lengths: LengthSource) -> list[RenderableType]:
    """Speed, utilization and delay of one cluster."""
    settings, summary = report.settings, report.summary()
    table = _table("", "")
    table.add_row("lengths from", Text(lengths.note))
    table.add_row("updates an hour", f"{report.updates_per_hour:.4g}")
    table.add_row("trainer updating", f"{report.trainer_utilization:.1%}")
    table.add_row("trainer waiting for groups", f"{summary['trainer_waiting_share']:.1%}")
    table.add_row("bringing weights to workers", f"{summary['sync_share']:.1%}")
    table.add_row("workers generating", f"{report.worker_utilization:.1%}")
    if settings.mtbf_hours is not None:
        lost = f"{summary['worker_lost_share']:.2%}, {report.failed_responses} responses cut off and started again"
        table.add_row("workers, lost to failures", lost)
    _add_delay_rows(table, report.lags.delays)
    table.add_row("mean delay from generation", f"{report.lags.generating:.2f} updates")
    table.add_row("mean delay from the queue", f"{report.lags.queued:.2f} updates")
    table.add_row("mean lag of a token", f"{report.lags.token_lag:.2f} updates")
    table.add_row("groups still waiting at the end", str(report.waiting_groups))
    size = f"{settings.workers} workers × {settings.slots} slots, at most {settings.max_ahead} batches ahead"
    return _titled(f"{size}, {report.updates} updates of {settings.prompts} × {settings.group_size} responses", table)


def frontier_tables(reports: Sequence[ClusterReport], best: Sequence[bool], lengths: LengthSource) -> list[RenderableType]:
    """Several clusters side by side; a star marks those that no other one beats."""
    table = _table(
        "workers",
        "batches\nahead",
        "updates\nan hour",
        "trainer\nbusy",
        "workers\nbusy",
        "delay\nmean",
        "\n95 %",
        "from\ngeneration",
        "from\nqueue",
        "",
    )
    for report, on_frontier in zip(reports, best, strict=True):
        lags = report.lags
        table.add_row(
            str(report.settings.workers),
            str(report.settings.max_ahead),
            f"{report.updates_per_hour:.4g}",
            f"{report.trainer_utilization:.1%}",
            f"{report.worker_utilization:.1%}",
            f"{lags.delays.mean:.2f}",
            str(lags.delays.quantile(0.95)),
            f"{lags.generating:.2f}",
            f"{lags.queued:.2f}",
            "*" if on_frontier else "",
        )
    title = f"{reports[0].updates} updates each, {lengths.note}"
    star = "* the frontier: no other line has as few workers, as little delay and as many updates an hour"
    return [*_titled(title, table), star]


def theory_tables(theory: dict[str, Any]) -> list[RenderableType]:
    """The bounds of the convergence theory at this delay."""
    bounds = _table("bound on E‖∇J‖²", "1/(ηN)", "(1+ε)η", "delay term")
    for name in ("gmc", "tic"):
        terms = theory[name]
        bounds.add_row(name, f"{terms['optimization']:.3g}", f"{terms['variance']:.3g}", f"{terms['delay']:.3g}")
    facts = _table("", "")
    facts.add_row("best cap ε* = τ̄₄^(1/7) N^(-3/14)", f"{theory['optimal_epsilon']:.3g}")
    verdict = "this delay keeps it" if theory["keeps_no_delay_rate"] else "this delay is above it"
    facts.add_row("largest τ̄₄ with the no-delay rate, N^(3/2)", f"{theory['largest_fourth_moment']:.3g}, {verdict}")
    facts.add_row("delay rate of GMC over TIC, both tuned", f"{theory['rate_factor']:.3f}")
    facts.add_row("G^(-2/5), near the policy", f"{theory['near_policy_group_factor']:.3f}")
    values = f"η = {theory['eta']:.3g}, ε = {theory['epsilon']:g}, N = {theory['updates']}"
    return [*_titled(f"theory at {values}, every constant set to 1", bounds), facts]


def delay_picture(delays: DelayStatistics) -> list[RenderableType]:
    """A histogram of delays, and delay by response length."""
    counts = delays.counts
    width = -(-len(counts) // _MOST_ROWS)
    padded = np.pad(counts, (0, -len(counts) % width)).reshape(-1, width).sum(axis=1)
    shares = padded / padded.sum()
    histogram = _table("updates", "share", "")
    for row, share in enumerate(shares):
        histogram.add_row(_span(row * width, (row + 1) * width - 1), f"{share:.1%}", _bar(share / shares.max()))
    return [
        *_titled("delay of trained responses", histogram),
        *_titled("mean delay by response length", _length_picture(delays)),
    ]


def _length_picture(delays: DelayStatistics) -> Table:
    table = _table("tokens", "responses", "delay", "")
    numbers = delays.counts_LD.sum(axis=1)
    means = delays.counts_LD @ np.arange(delays.counts_LD.shape[1]) / np.maximum(numbers, 1)
    whole = np.ceil(LENGTH_EDGES).astype(np.int64)
    for row in np.flatnonzero(numbers):
        low = 0 if row == 0 else int(whole[row])
        span = _span(low, int(whole[row + 1]) - 1)
        table.add_row(span, str(numbers[row]), f"{means[row]:.1f}", _bar(means[row] / max(means.max(), 1e-9)))
    return table


def _add_delay_rows(table: Table, delays: DelayStatistics) -> None:
    table.add_row("delay, mean and largest", f"{delays.mean:.2f} and {len(delays.counts) - 1} updates")
    table.add_row("delay, quantiles", ", ".join(f"{delays.quantile(share)} ({share:.0%})" for share in QUANTILES))
    table.add_row("delay, fourth moment", f"{delays.moment(4):.4g}")
    correlation = delays.length_correlation
    table.add_row("correlation of length and delay", "none, one is constant" if correlation is None else f"{correlation:.3f}")


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}–{high}"


def _titled(title: str, table: Table) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), table]


def _table(*headings: str) -> Table:
    """A table without lines: the first column and nameless ones to the left, the others to the right."""
    table = Table(show_header=any(headings), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place == 0 or heading == "" else "right")
    return table
