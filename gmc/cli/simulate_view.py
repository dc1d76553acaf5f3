"""What a person sees of a simulated delay: tables and pictures in the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gmc.evaluation.tables import FittingTable
from gmc.simulator.cluster_report import ClusterReport
from gmc.simulator.lengths import LengthSource
from gmc.simulator.simulate import Simulation
from gmc.simulator.statistics import LENGTH_EDGES, QUANTILES, DelayStatistics, moment

_BAR = 30
_MOST_ROWS = 16


def delay_tables(spec: str, lengths: LengthSource, result: Simulation) -> list[RenderableType]:
    """Delay statistics, and trained against launched lengths."""
    title = f"--delay {spec}, {result.updates} updates of {result.prompts} × {lengths.group_size} responses"
    waited = [] if result.waits is None else [("updates that waited", f"{result.waits / result.updates:.1%}")]
    clock = [] if result.clock is None else [("clock found", f"C = {result.clock:.4g} updates per 100 tokens")]
    facts = [
        ("lengths from", lengths.note),
        *clock,
        *_delay_rows(result.delays),
        *waited,
        _left_over(result),
    ]
    shares = ("0.5", "0.95", "0.99")
    bias = [
        (name, str(summary["responses"]), f"{summary['mean']:.1f}", *(str(summary["quantiles"][share]) for share in shares))
        for name, summary in (("launched", result.launched.summary()), ("trained", result.trained.summary()))
    ]
    return [
        *_table(title, ("", ""), facts),
        *_table("response lengths, in tokens", ("", "responses", "mean", "50 %", "95 %", "99 %"), bias),
    ]


def _left_over(result: Simulation) -> tuple[str, str]:
    if result.uses == 1:
        return "groups still waiting at the end", str(result.waiting)
    return "uses of groups still to come", f"{result.waiting}, of {result.uses} for each"


def cluster_tables(report: ClusterReport, lengths: LengthSource) -> list[RenderableType]:
    """Speed, utilization and delay of one cluster."""
    settings, summary = report.settings, report.summary()
    who = "followers" if settings.follow else "workers"
    size = f"{settings.workers} {who} × {settings.slots} slots, at most {settings.max_ahead} batches ahead"
    title = f"{size}, {report.updates} updates of {settings.prompts} × {settings.group_size} responses"
    lost = f"{summary['worker_lost_share']:.2%}, {report.failed_responses} responses cut off and started again"
    facts = [
        ("lengths from", lengths.note),
        ("updates an hour", f"{report.updates_per_hour:.4g}"),
        ("trainer updating", f"{report.trainer_utilization:.1%}"),
        ("trainer waiting for groups", f"{summary['trainer_waiting_share']:.1%}"),
        ("weights on their way to workers", f"{summary['sync_share']:.1%} of the time, {settings.sync:.4g} s a version"),
        *([] if settings.bandwidth is None else [("policies moved", _moved(report, summary))]),
        ("workers generating", f"{report.worker_utilization:.1%}"),
        *([] if settings.mtbf_hours is None else [("workers, lost to failures", lost)]),
        *_delay_rows(report.lags.delays),
        (f"mean delay from generation{' and grading' * settings.follow}", f"{report.lags.generating:.2f} updates"),
        ("mean delay from the queue", f"{report.lags.queued:.2f} updates"),
        ("mean lag of a token", f"{report.lags.token_lag:.2f} updates"),
        ("groups still waiting at the end", str(report.waiting_groups)),
    ]
    return _table(title, ("", ""), facts)


def _moved(report: ClusterReport, summary: dict[str, Any]) -> str:
    sent, a_version = f"{report.versions_sent} of {report.updates} versions", report.policy_gb / report.versions_sent
    return f"{summary['policy_gb_per_hour'] / 1000:.3g} TB an hour, {a_version:.4g} GB a version; {sent}"


def frontier_tables(reports: Sequence[ClusterReport], best: Sequence[bool], lengths: LengthSource) -> list[RenderableType]:
    """Several clusters side by side; a star marks those that no other one beats."""
    headings = ("workers", "batches\nahead", "updates\nan hour", "trainer\nbusy", "workers\nbusy", "delay\nmean", "\n95 %")
    rows = [
        (
            str(report.settings.workers),
            str(report.settings.max_ahead),
            f"{report.updates_per_hour:.4g}",
            f"{report.trainer_utilization:.1%}",
            f"{report.worker_utilization:.1%}",
            f"{report.lags.delays.mean:.2f}",
            str(report.lags.delays.quantile(0.95)),
            f"{report.lags.generating:.2f}",
            f"{report.lags.queued:.2f}",
            "*" if on_frontier else "",
        )
        for report, on_frontier in zip(reports, best, strict=True)
    ]
    title = f"{reports[0].updates} updates each, {lengths.note}"
    star = "* the frontier: no other line has as few workers, as little delay and as many updates an hour"
    return [*_table(title, (*headings, "from\ngeneration", "from\nqueue", ""), rows), star]


def theory_tables(theory: dict[str, Any]) -> list[RenderableType]:
    """The bounds of the convergence theory at this delay."""
    columns = ("optimization", "variance", "delay", "sum", "minimizing_epsilon")
    bounds = [(rule, *(f"{theory[rule][column]:.3g}" for column in columns)) for rule in ("gmc", "tic")]
    best = theory["optimal_epsilon"]
    order = "does not hold at this delay; see the minimizing ε above" if best is None else f"{best:.3g}"
    verdict = "above it" if best is None else "below it"
    facts = [
        ("ε* = min{1, τ̄₄^(1/7) N^(-3/14)}, for τ̄₄ up to N^(3/2)", order),
        ("largest τ̄₄ with the no-delay rate, N^(3/2)", f"{theory['largest_fourth_moment']:.3g}; this delay is {verdict}"),
        ("delay rate of GMC over TIC at this ε, η tuned for each", f"{theory['rate_factor']:.3f}"),
        ("G^(-2/5), near the policy", f"{theory['near_policy_group_factor']:.3f}"),
    ]
    values = f"η = {theory['eta']:.3g}, ε = {theory['epsilon']:g}, N = {theory['updates']}"
    headings = ("bound on E‖∇J‖²", "1/(ηN)", "(1+ε)η", "delay term", "sum", "minimizing ε")
    return [*_table(f"theory at {values}, every constant set to 1", headings, bounds), _rows(("", ""), facts)]


def delay_picture(delays: DelayStatistics) -> list[RenderableType]:
    """A histogram of delays, and delay by response length."""
    width, counts = delays.binned(_MOST_ROWS)
    shares = counts / counts.sum()
    histogram = [
        (_span(row * width, (row + 1) * width - 1), f"{share:.1%}", _bar(share / shares.max()))
        for row, share in enumerate(shares)
    ]
    rows = np.flatnonzero(delays.counts_LD.sum(axis=1))
    means = [moment(delays.counts_LD[row], 1) for row in rows]
    edges = np.ceil(LENGTH_EDGES).astype(np.int64)
    edges[0] = 0
    by_length = [
        (_span(edges[row], edges[row + 1] - 1), str(delays.counts_LD[row].sum()), f"{mean:.1f}", _bar(mean / max(*means, 1e-9)))
        for row, mean in zip(rows, means, strict=True)
    ]
    return [
        *_table("delay of trained responses", ("updates", "share", ""), histogram),
        *_table("mean delay by response length", ("tokens", "responses", "delay", ""), by_length),
    ]


def _delay_rows(delays: DelayStatistics) -> list[tuple[str, str]]:
    correlation = delays.length_correlation
    return [
        ("delay, mean and largest", f"{delays.mean:.2f} and {len(delays.counts) - 1} updates"),
        ("delay, quantiles", ", ".join(f"{delays.quantile(share)} ({share:.0%})" for share in QUANTILES)),
        ("delay, fourth moment", f"{delays.moment(4):.4g}"),
        ("correlation of length and delay", "none, one is constant" if correlation is None else f"{correlation:.3f}"),
    ]


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}–{high}"


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), _rows(headings, rows)]


def _rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines: the first column and nameless ones to the left, the others to the right."""
    table = FittingTable(show_header=any(headings), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        number = place > 0 and heading != ""
        table.add_column(heading, justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
