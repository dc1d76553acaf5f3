"""`gmc runs`: the runs below a folder, one line each, by the folder they lie in."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gmc.cli import options
from gmc.cli.output import PlainConsole
from gmc.cli.progress import WIDE_TERMINAL
from gmc.cli.sparkline import can_draw, curve_text

CURVE, NARROW_CURVE = 16, 8
STYLES = {"working": "green", "damaged": "red", "stopped": "yellow"}
INNER = ("rewards", "settings")
"""What of a run's description is for its line and the comparison with others alone."""
MOST_DIFFERENCES = 4
TITLES = ("rule", "delay", "updates", "reward", "", "age", "state")
RIGHT = ("updates", "reward", "age")
GAP, INDENT = "  ", "  "


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), json: options.JsonOption = False
) -> None:
    """List the runs in a folder: rule, delay, updates, reward, age and state."""
    from gmc.cli.output import print_json, write_line
    from gmc.errors import UsageError
    from gmc.live.listing import describe_run, find_runs

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; runs are made in runs/ unless --run says otherwise")
    found = [describe_run(path) for path in find_runs(folder)]
    if json:
        print_json({"runs": [{key: value for key, value in run.items() if key not in INNER} for run in found]})
    elif found:
        console = PlainConsole(highlight=False)
        _show(found, folder, console)
        for run in found:
            if run["state"] == "damaged":
                console.say(Text(f"damaged: {run['error']}", style="red"))
    else:
        write_line(f"no runs in {folder}; start one with gmc train --run {folder}/NAME")


def _show(found: list[dict[str, Any]], folder: Path, console: Console) -> None:
    """Runs of folders below stand under the folder's name, and a name too long for its column above its row: none is cut."""
    from gmc.live.listing import differing

    wide = console.width >= WIDE_TERMINAL
    ordered = sorted(found, key=lambda run: Path(run["run"]).parent != folder)
    names = [_name(Path(run["run"]), folder) for run in ordered]
    rows = [TITLES, *(_cells(run, CURVE if wide else NARROW_CURVE) for run in ordered)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(TITLES))]
    room = min(max(len("run"), *map(len, names)), max(console.width - sum(widths) - len(GAP) * len(widths), len("run")))
    lines, shown, told = [_line("run", TITLES, widths, room)], folder, differing(found)
    for name, run, row in zip(names, ordered, rows[1:], strict=True):
        parent = Path(run["run"]).parent
        if name.startswith(INDENT) and parent != shown:
            shown = parent
            lines.append(Text(f"{parent.relative_to(folder)}/", style="bold"))
        lines.append(_line(name, row, widths, room, STYLES.get(run["state"], "")))
        if told.get(run["run"]):
            lines.append(Text(f"{INDENT}{INDENT}{_difference(told[run['run']])}", style="dim"))
    console.print(Text("\n").join(lines), soft_wrap=True)


def _name(path: Path, folder: Path) -> str:
    if path == folder:
        return str(path)
    return path.name if path.parent == folder else f"{INDENT}{path.name}"


def _line(name: str, row: Sequence[str], widths: Sequence[int], room: int, style: str = "") -> Text:
    cells = [
        cell.rjust(width) if title in RIGHT else cell.ljust(width)
        for title, cell, width in zip(TITLES, row, widths, strict=True)
    ]
    first = name.ljust(room) if len(name) <= room else f"{name}\n{' ' * room}"
    return Text.assemble((first, "bold"), GAP, GAP.join(cells[:-1]), GAP, (cells[-1].rstrip(), style))


def _cells(run: dict[str, Any], width: int) -> list[str]:
    """What stands behind a run's name, by `TITLES`."""
    if run["state"] == "damaged":
        return [*[""] * (len(TITLES) - 1), "damaged"]
    planned = "" if run["planned_updates"] is None else f"/{run['planned_updates']}"
    reward = "" if run["reward"] is None else f"{run['reward']:.3f}"
    curve = curve_text(run["rewards"], width, digits=2, unicode=can_draw(sys.stdout.encoding))
    made = f"{run['updates']}{planned}"
    return [run["rule"] or "", run["delay"] or "", made, reward, curve, _age(run["age_seconds"]), run["state"]]


def _difference(settings: dict[str, Any]) -> str:
    """What tells a run from its neighbours: "learning_rate 0.0004", by the last word of each key."""
    said = [f"{key.rpartition('.')[2]} {value}" for key, value in settings.items()]
    rest = len(said) - MOST_DIFFERENCES
    return ", ".join(said[:MOST_DIFFERENCES]) + (f" and {rest} more" if rest > 0 else "")


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
