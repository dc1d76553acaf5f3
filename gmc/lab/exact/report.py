"""Exact moments as tables for a terminal, as CSV, and as a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gmc.evaluation.tables import new_table
from gmc.store.files import atomic_path, write_text

COLUMNS = {
    "quality": "Q",
    "relative_bias": "bias",
    "cosine": "cos",
    "scale": "scale",
    "relative_variance": "var",
    "removed": "cut",
}
MEANING = (
    "Q: best gain of one step as a share of the noise-free one. bias: ‖E g − ∇J‖/‖∇J‖. cos: of E g and ∇J. scale: "
    "⟨∇J, E g⟩/‖∇J‖². var: variance of one group's gradient over ‖∇J‖². cut: mean of (ρ − weight)₊."
)
CSV_FIELDS = (
    "vocabulary",
    "tokens",
    "direction",
    "drift",
    "group_size",
    "responses",
    "pairs",
    "arm",
    "kl",
    "ess",
    *COLUMNS,
    "mass_second",
)


def moment_tables(records: Sequence[Mapping[str, Any]]) -> Sequence[Table]:
    """One table for each drift and group size, best quality first."""
    tables = []
    for cell in by_cell(records).values():
        first = cell[0]
        title = (
            f"{first['direction']} drift {first['drift']:g}, G = {first['group_size']}, P = "
            f"{first['responses'] // first['group_size']}: KL {first['kl']:.3g}, ESS {first['ess']:.2f}, {first['pairs']} pairs"
        )
        table = new_table(title, ("rule",), tuple(COLUMNS.values()))
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


def save_pictures(path: Path, grids: Sequence[Sequence[Mapping[str, Any]]]) -> list[Path]:
    """One picture a grid; with several, their numbers stand behind the name: s0-1.svg, s0-2.svg. Returns what was written."""
    many = len(grids) > 1
    paths = [path.with_stem(f"{path.stem}-{number}") if many else path for number in range(1, len(grids) + 1)]
    for one, records in zip(paths, grids, strict=True):
        _save_picture(one, records)
    return paths


def _save_picture(path: Path, records: Sequence[Mapping[str, Any]], most: int = 10) -> None:
    """Quality and relative bias of the `most` arms of best mean quality, a row a direction.

    Against group size where that varies, else against the one setting that all arms have, else against drift. The first two are
    drawn at the largest drift.
    """
    from matplotlib.figure import Figure

    axis = _axis(records)
    largest = max(record["drift"] for record in records)
    shown = records if axis == "drift" else [record for record in records if record["drift"] == largest]
    directions = list(dict.fromkeys(record["direction"] for record in shown))
    figure = Figure(figsize=(11.0, 0.4 + 3.8 * len(directions)), layout="constrained")
    rows = figure.subplots(len(directions), 2, squeeze=False)
    for (left, right), direction in zip(rows, directions, strict=True):
        curves = _curves([record for record in shown if record["direction"] == direction], axis)
        for number, (label, points) in enumerate(curves[:most]):
            places = [_place(record, axis) for record in points]
            style = {"linestyle": ("-", "--", ":")[number % 3], "marker": "osD^v"[number % 5], "markersize": 3.5}
            left.plot(places, [record["quality"] for record in points], label=label, **style)
            right.plot(places, [record["relative_bias"] for record in points], **style)
        what = {"drift": "drift", "group_size": "responses a group"}.get(axis, axis)
        where = direction if axis == "drift" else f"{direction} drift {largest:g}"
        left.set(xlabel=what, ylabel="quality of one step, Q", title=where)
        right.set(xlabel=what, ylabel="relative bias", title=f"best {most} of {len(curves)}" if len(curves) > most else "")
        for axes in (left, right):
            axes.grid(alpha=0.3)
            if axis != "drift":
                values = sorted({_place(record, axis) for record in shown})
                axes.set_xscale("log" if axis == "group_size" else "symlog")
                axes.set_xticks(values, [f"{value:g}" for value in values])
                axes.minorticks_off()
        right.legend(
            *left.get_legend_handles_labels(), fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False
        )
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=120)


def _axis(records: Sequence[Mapping[str, Any]]) -> str:
    if len({record["group_size"] for record in records}) > 1:
        return "group_size"
    keys = {tuple(record["settings"]) for record in records}
    values = [value for record in records for value in record["settings"].values()]
    shared = len(keys) == 1 and all(isinstance(value, int | float) for value in values) and len(set(values)) > 1
    return str(next(iter(keys))[0]) if shared and len(next(iter(keys))) == 1 else "drift"


def _place(record: Mapping[str, Any], axis: str) -> Any:
    return record[axis] if axis in record else record["settings"][axis]


def _curves(records: Sequence[Mapping[str, Any]], axis: str) -> list[tuple[str, list[Mapping[str, Any]]]]:
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        curves.setdefault(record["arm"] if axis in record else record["rule"], []).append(record)
    ordered = sorted(curves.items(), key=lambda item: -sum(record["quality"] for record in item[1]) / len(item[1]))
    return [(label, sorted(points, key=lambda record: _place(record, axis))) for label, points in ordered]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"
