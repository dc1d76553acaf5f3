"""`gmc lab toy`: thousands of small trainings with an exact objective."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli.options import JsonOption


def toy(
    study: Annotated[
        Path | None, typer.Argument(help="A study file of grid tables, in place of the options of a grid.", show_default=False)
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator", help="NAME or NAME:KEY=VALUE. May be repeated. (default: all installed)", show_default=False
        ),
    ] = None,
    delay: Annotated[
        list[str] | None, typer.Option("--delay", help="Delay in updates. May be repeated.", show_default="64")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="X,X,...", help="Constant learning rates.", show_default="0.04,0.08,0.16")
    ] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help="adam, sgd or one-norm.", show_default="adam")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Runs of each cell.", show_default="6")] = None,
    updates: Annotated[int | None, typer.Option("--updates", min=50, help="Updates of a run.", show_default="300")] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Rule that others are compared with.", show_default="gmc, or the first")
    ] = None,
    tuning: Annotated[
        int | None,
        typer.Option(
            "--tuning",
            min=0,
            help="Seeds that choose settings and rates; the others judge. 0: all do both.",
            show_default="a third",
        ),
    ] = None,
    apart: Annotated[
        list[str] | None,
        typer.Option(
            "--apart", help="A setting whose values compete instead of being chosen. May be repeated.", show_default=False
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes, one thread each.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Results, one JSON line a cell; the same command goes on with it.", show_default=False),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every cell as CSV.", show_default=False)] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw into this .png or .svg.", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Train a small policy whose expected reward is exact, many runs at once: rules, delays, rates and optimizers over seeds.

    Any installed rule; those that look at the whole batch or act on gradient or rate see one batch a run and take longer.
    """
    from gmc.cli.lab_exact import require_askable
    from gmc.config.file_kinds import TOY
    from gmc.delays.registry import arguments_of

    require_askable(TOY, study, estimator, plot)  # before torch is loaded
    for text in delay or ():
        arguments_of(text)
    from gmc.cli.progress import progress_bar
    from gmc.lab.study_file import ResultLines
    from gmc.lab.toy.grid import KEYS, check_jobs, found_records, is_done, run_jobs

    options = {"estimator": estimator, "delay": delay, "rate": rate, "optimizer": optimizer, "seeds": seeds, "updates": updates}
    todo = _jobs(study, {name: value for name, value in options.items() if value is not None})
    check_jobs(todo)
    lines = ResultLines(out, KEYS)
    done = sum(job.runs for job in todo if is_done(job, lines))
    with progress_bar("toy", sum(job.runs for job in todo), "runs", done=done) as bar:
        run_jobs(todo, lines, processes=jobs, advance=bar.advance)
    records = found_records(todo, lines)
    _show(records, reference=reference, tuning=tuning, apart=apart or [], csv=csv, plot=plot, json=json)


def _jobs(study: Path | None, options: dict[str, Any]) -> list[Any]:
    from gmc.cli.lab_exact import numbers
    from gmc.errors import UsageError
    from gmc.lab.arms import Arm
    from gmc.lab.study_file import make_grid, read_grids
    from gmc.lab.toy.grid import ToyGrid

    if study is not None:
        if options:
            raise UsageError(f"gmc lab toy {study}: the study says the grid; leave out --{next(iter(options))}")
        return [job for grid in read_grids(study, ToyGrid) for job in grid.jobs()]
    table: dict[str, Any] = {key: options[key] for key in ("seeds", "updates") if key in options}
    if "delay" in options:
        table["delays"] = options["delay"]
    if "rate" in options:
        table["rates"] = numbers("--rate", options["rate"])
    if "optimizer" in options:
        table["optimizers"] = [options["optimizer"]]
    grid = make_grid(table, ToyGrid, "gmc lab toy")
    return list(grid.jobs([Arm.parse(text) for text in options.get("estimator", [])] or None))


def _show(
    records: list[dict[str, Any]],
    *,
    reference: str | None,
    tuning: int | None,
    apart: list[str],
    csv: Path | None,
    plot: Path | None,
    json: bool,
) -> None:
    from rich.console import Console

    from gmc.cli.output import print_json, write_line
    from gmc.lab.toy.report import meaning, save_csv, save_picture, verdict_tables
    from gmc.lab.toy.verdicts import default_tuning, entrant, verdicts

    entrants = list(dict.fromkeys(entrant(record, apart) for record in records if "error" not in record))
    against = reference or ("gmc" if "gmc" in entrants else next(iter(entrants), ""))
    found = verdicts(records, reference=against, tuning=tuning, apart=apart)
    if csv is not None:
        save_csv(csv, records)
    if plot is not None:
        save_picture(plot, found, against)
    failed = {record["arm"]: record["error"] for record in records if "error" in record}
    if json:
        print_json({"verdicts": [one.record() for one in found], "cells": records, "failed": failed})
    else:
        Console(highlight=False).print(*verdict_tables(found, against), sep="\n")
        seeds = max((record["seeds"] for record in records), default=0)
        write_line(meaning(found, default_tuning(seeds) if tuning is None else tuning, seeds))
    for label, reason in failed.items():
        write_line(f"failed: {label}: {reason}")
