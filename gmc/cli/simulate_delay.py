"""`gmc simulate-delay`: how stale rollouts would be, from response lengths alone."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli import options
from gmc.simulator.cluster_settings import DEFAULT_SIZE, DEFAULT_UPDATES, ClusterSettings, flag_of_field

THEORY = "Theory"
CLUSTER = "Cluster (in place of --delay)"


@options.dataclass_options(
    ClusterSettings,
    panel=CLUSTER,
    flag_of_field=flag_of_field,
    lists=("workers", "max_ahead"),
    without=("prompts", "group_size"),
)
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
            "--updates",
            min=1,
            help=f"Updates to simulate. (default: {DEFAULT_UPDATES}, or as many as are recorded)",
            show_default=False,
        ),
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option(
            "--prompts", min=1, help=f"P, groups an update. (default: the run's, else {DEFAULT_SIZE})", show_default=False
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size", min=1, help=f"G, responses a group. (default: the run's, else {DEFAULT_SIZE})", show_default=False
        ),
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
    json: options.JsonOption = False,
    **cluster: Any,
) -> None:
    """Simulate delays without a model, from response lengths: a schedule to train on, or a forecast for a cluster.

    With --delay, the virtual clock: writes the schedule that `gmc train --delay schedule:FILE` follows. With --workers, a
    discrete-event simulation of rollout workers and one trainer.
    """
    from gmc.cli.output import print_json
    from gmc.cli.simulate_run import CommonRequest, run_cluster, run_delay
    from gmc.errors import UsageError

    common = CommonRequest(run, lengths, updates, prompts, group_size, seed, epsilon, eta, plot)
    workers, max_ahead = cluster.pop("workers"), cluster.pop("max_ahead")
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
