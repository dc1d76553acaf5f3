"""`gmc fleet`: followers of a live run, placed and kept alive by Ray."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options


def fleet(
    run: options.RunOption = Path("runs/default"),
    followers: Annotated[int, typer.Option("--followers", min=1, help="How many to keep alive.")] = 1,
    gpus_each: Annotated[float, typer.Option("--gpus-each", min=0, help="GPUs that Ray sets aside for each.")] = 0,
    cpus_each: Annotated[float, typer.Option("--cpus-each", min=0, help="CPU cores that Ray sets aside for each.")] = 1,
    address: Annotated[
        str | None,
        typer.Option("--address", help="A Ray cluster, HOST:PORT or auto. (default: this machine)", show_default=False),
    ] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="What samples the tokens.", show_default=False)] = None,
    set_: options.SetOption = None,
    json: options.JsonOption = False,
) -> None:
    """Keep followers of gmc train --live alive on a Ray cluster, or on this machine, until the run ends."""
    from gmc.cli.logs import show_logs
    from gmc.cli.output import INTERRUPTED, print_json, write_line
    from gmc.errors import UsageError
    from gmc.training.signals import stop_on_signals

    try:
        from gmc.live.fleet import Fleet, run_fleet
    except ImportError as error:
        raise UsageError(f"gmc fleet needs Ray: pip install 'gmc-rl[ray]' ({error})") from error

    show_logs()
    arguments = [*(["--engine", engine] if engine else []), *(part for text in set_ or () for part in ("--set", text))]
    asked = Fleet(run, followers, arguments, gpus_each, cpus_each, address)
    write_line(f"followers of {run} to keep alive: {followers}; what each says is in {run}/logs/fleet-*.log")
    with redirect_stdout(sys.stderr), stop_on_signals() as stop:  # Ray prints what it notices on stdout
        summary = run_fleet(asked, stopping=lambda: bool(stop))
    how = f"stopped by {stop.by}" if stop else "the fleet has ended"
    write_line(
        f"{how}: {summary.finished} followers saw the run's end, {summary.restarts} were started again, "
        f"{len(summary.given_up)} given up"
    )
    if json:
        print_json({"run": str(run), **vars(summary)})
    if stop.signal_name == "SIGINT":
        raise typer.Exit(INTERRUPTED)
    if summary.given_up:
        raise typer.Exit(1)
