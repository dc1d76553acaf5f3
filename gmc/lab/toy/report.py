"""Toy results as tables for a terminal, as CSV, and as a picture."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gmc.evaluation.tables import new_table
from gmc.lab.toy.one_step import Step
from gmc.lab.toy.verdicts import Verdict
from gmc.store.files import atomic_path, write_text

CSV_FIELDS = ("delay", "optimizer", "rate", "arm", "rule", "seeds", "updates", "final", "area", "drop", "spread", "error")


def verdict_tables(verdicts: Sequence[Verdict], reference: str) -> Sequence[Table]:
    """One table a delay and optimizer: each rule as tuned, its final J, and the paired difference to the reference."""
    tables = []
    for (optimizer, delay), group in _by_cell(verdicts).items():
        seeds = next((verdict.difference.seeds for verdict in group if verdict.difference is not None), 0)
        title = f"delay {delay}, {optimizer}" + (f": paired over {seeds} seeds" if seeds else "")
        heads = ("rate", "final J", f"minus {reference}", "p", "area", f"minus {reference}")
        table = new_table(title, ("rule as tuned",), heads)
        for one in group:
            table.add_row(
                one.arm,
                f"{one.rate:g}",
                f"{one.final:.3f}",
                "" if one.difference is None else _with_reach(one.difference.mean, one.difference.reach, sign=True),
                "" if one.holm is None else f"{one.holm:.2g}",
                f"{one.area:.3f}",
                ""
                if one.area_difference is None
                else _with_reach(one.area_difference.mean, one.area_difference.reach, sign=True),
            )
        tables.append(table)
    return tables


STEP_MEANING = (
    "cos: of the rule's mean gradient and ∇J, freed of the noise of so many batches, so that slightly more than 1 may come "
    "out. scale: ⟨∇J, E g⟩/‖∇J‖². var: of an update batch's gradient over ‖∇J‖². "
    "Q: best gain of one step as a share of the noise-free one."
)


def step_tables(steps: Sequence[Step]) -> Sequence[Table]:
    """One table an age, best quality first."""
    tables = []
    for age in dict.fromkeys(one.age for one in steps):
        mine = sorted((one for one in steps if one.age == age), key=lambda one: -one.quality)
        title = f"data {age} updates old: std of log ρ {mine[0].spread:.2f}"
        table = new_table(title, ("rule",), ("cos", "scale", "var", "Q"))
        for one in mine:
            table.add_row(
                one.arm, f"{one.cosine:.3f}", f"{one.scale:.3f}", f"{one.relative_variance:.3g}", f"{one.quality:.4f}"
            )
        tables.append(table)
    return tables


def meaning(verdicts: Sequence[Verdict], tuning: int, seeds: int) -> str:
    """How to read the tables."""
    compared = sum(verdict.difference is not None for verdict in verdicts)
    split = (
        f"Settings and rates were chosen by the first {tuning} seeds, the others judge"
        if tuning
        else f"All {seeds} seeds choose and judge, which favors rules with more candidates"
    )
    return (
        f"{split}. ±: half of Student's 95 % interval, by seed. p: of the difference in final J, Holm over the {compared} "
        "comparisons here. area: mean J over the run."
    )


def save_csv(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """One row a delay, optimizer, rate and arm; final, area and drop are means over all seeds."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        means = {} if "error" in record else {name: round(_mean(record[name]), 5) for name in ("final", "area", "drop")}
        writer.writerow({**record, **means})
    write_text(path, text.getvalue())


def save_picture(path: Path, verdicts: Sequence[Verdict], reference: str) -> None:
    """Final J of every tuned rule by delay, and its paired difference to the reference, with 95 % intervals."""
    from matplotlib.figure import Figure

    optimizers = list(dict.fromkeys(verdict.optimizer for verdict in verdicts))
    delays = sorted({verdict.delay for verdict in verdicts}, key=_kind_then_number)
    kinds = [list(found) for _, found in groupby(range(len(delays)), key=lambda place: _kind_then_number(delays[place])[0])]
    rules = list(dict.fromkeys(verdict.rule for verdict in verdicts))
    figure = Figure(figsize=(11.0, 0.6 + 4.0 * len(optimizers)), layout="constrained")
    rows = figure.subplots(len(optimizers), 2, squeeze=False)
    for (left, right), optimizer in zip(rows, optimizers, strict=True):
        for number, rule in enumerate(rules):
            mine = {one.delay: one for one in verdicts if one.optimizer == optimizer and one.rule == rule}
            # Beside each other, near the tick.
            shift = min(0.08, 0.6 / max(1, len(rules) - 1)) * (number - (len(rules) - 1) / 2)
            # Ten colors and seven marks: no two of seventy rules look alike.
            style = {"color": f"C{number % 10}", "marker": "osD^vP*"[number % 7], "markersize": 4, "capsize": 2}
            for kind in kinds:
                own = [(place + shift, mine[delays[place]]) for place in kind if delays[place] in mine]
                final, reaches = [one.final for _, one in own], [one.reach or 0.0 for _, one in own]
                left.errorbar([place for place, _ in own], final, reaches, linewidth=0.8, **style)
                apart = [(place, one.difference) for place, one in own if one.difference is not None]
                middle, reach = [one.mean for _, one in apart], [one.reach or 0.0 for _, one in apart]
                right.errorbar([place for place, _ in apart], middle, reach, linestyle="none", **style)
            if optimizer == optimizers[0]:
                left.plot([], [], linewidth=0.8, color=style["color"], marker=style["marker"], markersize=4, label=rule)
        right.axhline(0, color="black", linewidth=0.8)
        left.set(ylabel=f"final J, {optimizer}")
        right.set(ylabel=f"final J minus {reference}'s, by seed")
        for axes in (left, right):
            axes.set_xticks(np.arange(len(delays)), delays, rotation=30 if len(delays) > 5 else 0)
            axes.set(xlabel="delay", xlim=(-0.5, len(delays) - 0.5))
            axes.grid(alpha=0.3)
    figure.legend(fontsize="small", loc="outside right upper", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=150)


def _kind_then_number(delay: str) -> tuple[str, float]:
    """What a delay is ordered by: its kind, ramp of ramp:64, and the last number in it; plain numbers come first."""
    numbers = re.findall(r"\d+\.?\d*", delay)
    kind, colon, _ = delay.partition(":")
    return (kind if colon or not numbers else "", float(numbers[-1]) if numbers else -1.0)


def _by_cell(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], list[Verdict]]:
    cells: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        cells.setdefault((verdict.optimizer, verdict.delay), []).append(verdict)
    return cells


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([0.0 if value is None else value for value in values]))


def _with_reach(value: float, reach: float | None, *, sign: bool = False) -> str:
    return (f"{value:+.3f}" if sign else f"{value:.3f}") + ("" if reach is None else f" ± {reach:.3f}")
