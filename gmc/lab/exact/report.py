"""Exact moments as tables for a terminal, as CSV, and as a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from gmc.store.files import atomic_path, write_text

COLUMNS = {
    "quality": "Q",
    "relative_bias": "bias",
    "cosine": "cos",
    "scale": "scale",
    "relative_variance": "var",
    "removed": "cut",
    "mass_second": "E m²",
}
MEANING = (
    "Q: best gain of one step as a share of the noise-free one. bias: ‖E g − ∇J‖/‖∇J‖. cos: of E g and ∇J. scale: "
    "⟨∇J, E g⟩/‖∇J‖². var: variance of one group's gradient over ‖∇J‖². cut: mean of (ρ − weight)₊. m: a group's mean weight."
)
CSV_FIELDS = ("vocabulary", "tokens", "direction", "drift", "group_size", "responses", "pairs", "arm", "kl", "ess", *COLUMNS)


def moment_tables(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table for each drift and group size, best quality first."""
    tables = []
    for cell in by_cell(records).values():
        first = cell[0]
        title = (
            f"{first['direction']} drift {first['drift']:g}, G = {first['group_size']}, P = "
            f"{first['responses'] // first['group_size']}: KL {first['kl']:.3g}, ESS {first['ess']:.2f}, {first['pairs']} pairs"
        )
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("rule", no_wrap=True)
        for name in COLUMNS.values():
            table.add_column(name, justify="right", no_wrap=True)
        for record in sorted(cell, key=lambda record: -record["quality"]):
            table.add_row(record["arm"], *(_number(record[key]) for key in COLUMNS))
        tables.append(table)
    return tables


def by_cell(records: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Records that differ in the arm alone, together."""
    cells: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        key = tuple(str(record[name]) for name in ("vocabulary", "tokens", "direction", "group_size", "drift"))
        cells.setdefault(key, []).append(record)
    return cells


def save_csv(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """One row a cell and arm; an empty field where a rule has no such number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(path, text.getvalue())


def save_picture(path: Path, records: Sequence[Mapping[str, Any]], most: int = 10) -> None:
    """Quality and relative bias against drift (or group size, where only that varies), the `most` best arms by mean quality."""
    from matplotlib.figure import Figure

    axis = "drift" if len({record["drift"] for record in records}) > 1 else "group_size"
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    curves = _curves(records, axis)
    for number, (label, points) in enumerate(curves[:most]):
        style = ("-", "--", ":")[number % 3]
        places = [record[axis] for record in points]
        left.plot(places, [record["quality"] for record in points], style, marker="o", markersize=3, label=label)
        right.plot(places, [record["relative_bias"] for record in points], style, marker="o", markersize=3)
    what = "drift" if axis == "drift" else "responses a group"
    left.set(xlabel=what, ylabel="quality of one step, Q", ylim=(0, 1))
    right.set(xlabel=what, ylabel="relative bias")
    if axis == "group_size":
        for axes in (left, right):
            axes.set_xscale("log", base=2)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    title = f"the {most} arms of best mean quality, of {len(curves)}" if len(curves) > most else ""
    figure.suptitle(title)
    figure.legend(fontsize="small", loc="outside right upper", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=150)


def _curves(records: Sequence[Mapping[str, Any]], axis: str) -> list[tuple[str, list[Mapping[str, Any]]]]:
    varying = [key for key in ("vocabulary", "tokens", "direction", "group_size", "drift") if key != axis]
    varying = [key for key in varying if len({record[key] for record in records}) > 1]
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        label = " ".join([record["arm"], *(f"{key}={record[key]}" for key in varying)])
        curves.setdefault(label, []).append(record)
    ordered = sorted(curves.items(), key=lambda item: -sum(record["quality"] for record in item[1]) / len(item[1]))
    return [(label, sorted(points, key=lambda record: record[axis])) for label, points in ordered]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"
