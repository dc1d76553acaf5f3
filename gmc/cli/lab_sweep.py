"""`gmc lab sweep`: all runs of a study, from one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gmc.cli import options

if TYPE_CHECKING:
    from gmc.lab.sweep import SweepOutcome


def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file (TOML), such as recipes/lab/s2.toml.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of runs and results. (default: runs/lab/NAME)", show_default=False),
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Results file. (default: OUT/results.jsonl)", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs side by side, each in one process.")] = 1,
    launcher: Annotated[str, typer.Option("--launcher", help="local, ray, or slurm (submitit).")] = "local",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="A launcher's own, as slurm_partition=gpu.", show_default=False),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make the runs again that are recorded as failed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List arms, runs and estimated hours, check every setting, and exit.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Run a study: every arm over every seed, settings chosen first on seeds of their own. The same command goes on."""
    from gmc.lab.sweep_file import read_sweep

    read_sweep(file)  # what is wrong in it is said before torch is loaded
    from gmc.cli.lab_sweep_view import TableView, dry_run_record, show_plan
    from gmc.cli.logs import show_logs
    from gmc.cli.output import print_json, write_line
    from gmc.lab.sweep import RESULTS, Options, default_folder, open_study, run_sweep
    from gmc.lab.sweep_launch import load_launcher
    from gmc.training.signals import stop_on_signals

    load_launcher(launcher)
    study = open_study(file, pending=dry_run)
    folder = out or default_folder(study)
    if dry_run:
        record = dry_run_record(study, results or folder / RESULTS, jobs)
        if json:
            print_json(record)
        else:
            show_plan(record)
        return
    show_logs()
    asked = Options(jobs, launcher, _pairs(option or []), retry)
    with stop_on_signals() as stop, TableView(jobs) as view:
        outcome = run_sweep(study, folder, asked, results=results, view=view, stopping=lambda: bool(stop))
    for line in report_lines(outcome, stop.by):
        write_line(line)
    if json:
        print_json(outcome.record())
    if outcome.missing or outcome.failed or outcome.without_choice:
        raise typer.Exit(1)


def _pairs(texts: list[str]) -> dict[str, str]:
    from gmc.errors import UsageError

    for text in texts:
        if "=" not in text:
            raise UsageError(f"--option {text}: write it as KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def report_lines(outcome: "SweepOutcome", stopped_by: str | None) -> list[str]:
    """How the sweep ended and what to do next; of a report only where there is something to report on."""
    from gmc.evaluation.report import counted

    lines = []
    if outcome.finished:
        are = "is" if outcome.finished == 1 else "are"
        lines = [f"{counted(outcome.finished, 'run')} {are} in {outcome.results}; next: gmc lab report {outcome.results}"]
    if outcome.failed:
        lines.append(
            f"{counted(outcome.failed, 'run')} failed; their lines in {outcome.results} say why, --retry makes them again"
        )
    if stopped_by:
        lines.append(f"stopped by {stopped_by} with {counted(outcome.missing, 'run')} to go; the same command goes on")
    elif outcome.without_choice:
        lines.append("an arm has no verdict: no cell of it finished its tuning on every seed")
    return lines
