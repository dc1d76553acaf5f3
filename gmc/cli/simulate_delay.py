"""`gmc simulate-delay`: how stale rollouts would be, from response lengths alone."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options

THEORY = "Theory"
CLUSTER = "Cluster (in place of --delay)"


def simulate_delay(
    run: Annotated[
        Path | None, typer.Argument(help="Take the response lengths from the rollouts of this run.", show_default=False)
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            help="Delay to simulate, as for gmc train: length:28, length:mean=160, uniform:0:64, …; or 'recorded', "
            "what the run's updates used.",
            show_default=False,
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            help="lognormal:MEAN:SIGMA (arithmetic mean in tokens, sigma of the log), or a file with one length a line.",
            show_default=False,
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(
            "--updates", min=1, help="Updates to simulate. (default: 1600, or as many as are recorded)", show_default=False
        ),
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option("--prompts", min=1, help="P, groups an update. (default: the run's, else 8)", show_default=False),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", min=1, help="G, responses a group. (default: the run's, else 8)", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is drawn.")] = 0,
    schedule: Annotated[
        Path | None,
        typer.Option(
            "--schedule",
            help="Where to write the schedule. (default: schedule.parquet, in the run if there is one)",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing schedule that differs.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw the picture to a .png or .svg file.", show_default=False)
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", min=0.001, help="ε of the bounds.", rich_help_panel=THEORY)] = 0.28,
    eta: Annotated[
        float | None,
        typer.Option(
            "--eta",
            help="η of the bounds, the theory's step size. (default: N^(-1/2))",
            show_default=False,
            rich_help_panel=THEORY,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers", help="Rollout workers; several, as 8,16,32, are compared.", show_default=False, rich_help_panel=CLUSTER
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", help="Responses a worker generates at once.", show_default=False, rich_help_panel=CLUSTER),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            "--tokens-per-second",
            help="Tokens a second of one response on a full worker.",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    update_seconds: Annotated[
        float | None,
        typer.Option(
            "--update-seconds", help="Time of one update on the trainer.", show_default=False, rich_help_panel=CLUSTER
        ),
    ] = None,
    sync_seconds: Annotated[
        float | None,
        typer.Option(
            "--sync-seconds",
            help="Time to bring new weights to the workers. (default: 0)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    max_ahead: Annotated[
        str | None,
        typer.Option(
            "--max-ahead",
            help="Batches that may be launched beyond the one in training; several, as 1,2,4, are compared. (default: 1)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    in_flight_updates: Annotated[
        bool | None,
        typer.Option(
            "--in-flight-updates",
            help="Workers pause for every sync and go on with the new weights.",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    mtbf: Annotated[
        float | None,
        typer.Option(
            "--mtbf",
            help="Mean hours between failures of a worker. (default: never)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    restart_seconds: Annotated[
        float | None,
        typer.Option(
            "--restart-seconds",
            help="Time a failed worker is away. (default: 120)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    straggler_share: Annotated[
        float | None,
        typer.Option(
            "--straggler-share",
            help="Share of workers that are slow. (default: 0)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    straggler_slowdown: Annotated[
        float | None,
        typer.Option(
            "--straggler-slowdown",
            help="How many times slower they are. (default: 2)",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Simulate delays without a model, from response lengths: a schedule to train on, or a forecast for a cluster.

    With --delay, the virtual clock: writes the schedule that `gmc train --delay schedule:FILE` follows. With --workers, a
    discrete-event simulation of rollout workers and one trainer.
    """
    from gmc.cli.output import print_json
    from gmc.cli.simulate_run import CommonRequest, run_cluster, run_delay
    from gmc.errors import UsageError

    common = CommonRequest(run, lengths, updates, prompts, group_size, seed, epsilon, eta, plot)
    cluster = {
        "slots": slots,
        "tokens_per_second": tokens_per_second,
        "update_seconds": update_seconds,
        "sync_seconds": sync_seconds,
        "in_flight_updates": in_flight_updates,
        "mtbf_hours": mtbf,
        "restart_seconds": restart_seconds,
        "straggler_share": straggler_share,
        "straggler_slowdown": straggler_slowdown,
    }
    given = {name: value for name, value in cluster.items() if value is not None}
    if (delay is None) == (workers is None):
        raise UsageError("gmc simulate-delay: give --delay for a virtual clock, or --workers for a cluster, and not both")
    if workers is not None:
        if schedule is not None or overwrite:
            raise UsageError("--schedule and --overwrite go with --delay: a cluster simulation writes no schedule")
        record = run_cluster(common, workers, max_ahead or "1", given)
    else:
        if given or max_ahead is not None:
            raise UsageError("options of a cluster (--slots, --max-ahead, …) need --workers in place of --delay")
        assert delay is not None
        record = run_delay(common, delay, schedule, overwrite=overwrite)
    if json:
        print_json(record)
