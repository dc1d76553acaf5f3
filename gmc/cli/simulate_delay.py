"""`gmc simulate-delay`: how stale rollouts would be, from response lengths alone."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli import options
from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.request import SimulationRequest


@options.dataclass_options(SimulationRequest)
@options.dataclass_options(
    ClusterSettings, "Cluster (in place of --delay)", lists=("workers", "max_ahead"), without=("prompts", "group_size")
)
def simulate_delay(
    run: Annotated[
        Path | None, typer.Argument(help="Take the response lengths from the rollouts of this run.", show_default=False)
    ] = None,
    json: options.JsonOption = False,
    **said: Any,
) -> None:
    """Simulate delays without a model, from response lengths: a schedule to train on, or a forecast for a cluster.

    With --delay, the virtual clock; --schedule writes what `gmc train --delay schedule:FILE` follows. With --workers, a
    discrete-event simulation of rollout workers and one trainer.
    """
    from gmc.cli.output import print_json
    from gmc.cli.simulate_run import run_cluster, run_delay
    from gmc.errors import UsageError

    given = {name: value for name, value in said.items() if value is not None}
    cluster = {name: given.pop(name) for name in said if name not in vars(SimulationRequest) and name in given}
    request = SimulationRequest(run, **given)
    if ("delay" in given) == ("workers" in cluster):
        raise UsageError("gmc simulate-delay: give --delay for a virtual clock, or --workers for a cluster, and not both")
    if "delay" in given and cluster:
        raise UsageError("options of a cluster (--slots, --max-ahead, …) need --workers in place of --delay")
    if cluster and (request.schedule is not None or request.overwrite):
        raise UsageError("--schedule and --overwrite go with --delay: a cluster simulation writes no schedule")
    record = run_cluster(request, cluster) if cluster else run_delay(request)
    if json:
        print_json(record)
