"""`gmc runs`: the runs below a folder, one line each."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmc.cli import options
from gmc.cli.sparkline import can_draw, sparkline

CURVE = 16
STYLES = {"working": "green", "damaged": "red", "stopped": "yellow"}


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), json: options.JsonOption = False
) -> None:
    """List the runs in a folder: rule, delay, updates, reward, age and state."""
    from gmc.cli.output import print_json
    from gmc.errors import UsageError
    from gmc.live.listing import describe_run, find_runs

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; runs are made in runs/ unless --run says otherwise")
    found = [describe_run(path) for path in find_runs(folder)]
    if json:
        print_json({"runs": [{key: value for key, value in run.items() if key != "rewards"} for run in found]})
    elif found:
        console = Console(highlight=False)
        console.print(_table(found, folder))
        for run in found:
            if run["state"] == "damaged":
                console.print(Text(f"damaged: {run['error']}", style="red"), soft_wrap=True)
    else:
        typer.echo(f"no runs in {folder}; start one with gmc train --run {folder}/NAME", err=True)


def _table(found: list[dict[str, Any]], folder: Path) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("run", "rule", "delay", "updates", "reward", "", "age", "state"):
        table.add_column(title, justify="right" if title in ("updates", "reward", "age") else "left", no_wrap=title != "run")
    drawable = can_draw(sys.stdout.encoding)
    for run in found:
        name = Text(str(Path(run["run"]).relative_to(folder)) if run["run"] != str(folder) else run["run"], style="bold")
        state = Text(run["state"], style=STYLES.get(run["state"], ""))
        if run["state"] == "damaged":
            table.add_row(name, *[""] * 6, Text("damaged", style="red"))
            continue
        planned = "" if run["planned_updates"] is None else f"/{run['planned_updates']}"
        reward = "" if run["reward"] is None else f"{run['reward']:.3f}"
        curve = sparkline(run["rewards"], CURVE, unicode=drawable)
        age = _age(run["age_seconds"])
        table.add_row(name, run["rule"] or "", run["delay"] or "", f"{run['updates']}{planned}", reward, curve, age, state)
    return table


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
