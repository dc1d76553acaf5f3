"""What `gmc simulate-delay` does once its options are read."""

from typing import Any

from rich.console import Group

from gmc.cli.options import whole_numbers
from gmc.cli.output import stderr, write_line
from gmc.cli.progress import progress_bar
from gmc.cli.simulate_view import cluster_tables, delay_picture, delay_tables, frontier_tables, theory_tables
from gmc.delays.base import DelayContext, DelayModel
from gmc.delays.registry import arguments_of, delay_class, parse_delay
from gmc.delays.replay import ScheduleDelay
from gmc.delays.schedule import read_schedule, write_schedule
from gmc.errors import UsageError
from gmc.simulator.cluster import simulate_cluster
from gmc.simulator.cluster_report import frontier
from gmc.simulator.cluster_settings import DEFAULT_SIZE, DEFAULT_UPDATES, ClusterSettings
from gmc.simulator.followers import simulate_followers
from gmc.simulator.lengths import LengthSource, lengths_from_spec
from gmc.simulator.plots import check_plot_path, save_comparison, save_plot
from gmc.simulator.recorded import RecordedRun
from gmc.simulator.request import SimulationRequest
from gmc.simulator.simulate import simulate
from gmc.simulator.statistics import DelayStatistics
from gmc.simulator.theory import theory_record

RECORDED = "recorded"
"""In place of a delay: what the run's updates really used."""
KEEP = "to train on exactly these delays: --schedule FILE writes them, and gmc train --delay schedule:FILE follows them"
MOST_GROUPS = 10_000_000


def run_delay(request: SimulationRequest) -> dict[str, Any]:
    """Simulate a delay model, show and write what comes out; returns the record of `--json`."""
    spec = request.delay
    assert spec is not None
    if spec != RECORDED:
        delay_class(spec)
    recorded, lengths = _lengths(request)
    delays, updates = _delay_model(request, spec, recorded, lengths)
    if updates * lengths.prompts > MOST_GROUPS:
        raise UsageError(f"{updates:,} updates of {lengths.prompts:,} groups: a schedule holds at most {MOST_GROUPS:,} groups")
    with progress_bar("simulation", updates, "updates") as bar:
        result = simulate(delays, lengths, updates=updates, on_update=bar.advance)
    theory = _theory(request, result.delays, updates, lengths.group_size)
    path = request.schedule
    # Files come before the report, so that a closed pipe behind it cannot lose them.
    clash = path is not None and path.exists() and not request.overwrite and read_schedule(path)[0] != result.schedule
    if path is not None and not clash:
        write_schedule(path, result.schedule, uses=result.uses)
    _save_plot(request, result.delays, f"--delay {spec}: {lengths.note}")
    stderr.print(Group(*delay_tables(spec, lengths, result), *theory_tables(theory), *delay_picture(result.delays)))
    if clash:
        raise UsageError(f"{path}: holds another schedule, left alone; use --overwrite, or --schedule with another name")
    size = f"--prompts {lengths.prompts} --updates {updates}"
    write_line(f"schedule {path}: gmc train --delay schedule:{path} {size} follows it" if path else KEEP)
    record = {"delay_spec": spec, "lengths": lengths.note, "seed": request.seed, **result.summary(), "theory": theory}
    return {**record, "schedule": None if path is None else str(path)}


def run_cluster(request: SimulationRequest, cluster: dict[str, Any]) -> dict[str, Any]:
    """Simulate one cluster or compare several; returns the record of `--json`. cluster: what is said of it."""
    for name in ("slots", "tokens_per_second", "update_seconds"):
        if name not in cluster:
            raise UsageError(f"--workers needs --{name.replace('_', '-')} too")
    workers = whole_numbers("--workers", cluster.pop("workers"), least=1)
    ahead = whole_numbers("--max-ahead", cluster.pop("max_ahead", "1"), least=0)
    sizes = [(count, most) for count in workers for most in ahead]
    _, lengths = _lengths(request)
    updates = request.updates or DEFAULT_UPDATES
    reports = []
    with progress_bar("simulation", updates * len(sizes), "updates") as bar:
        for count, most in sizes:
            size = {"workers": count, "max_ahead": most, "prompts": lengths.prompts, "group_size": lengths.group_size}
            settings = ClusterSettings(**cluster | size)
            simulated = simulate_followers if settings.follow else simulate_cluster
            reports.append(simulated(settings, lengths, updates=updates, seed=request.seed, on_update=bar.advance))
    best = frontier(reports)
    records = []
    for report, on_frontier in zip(reports, best, strict=True):
        theory = _theory(request, report.lags.delays, updates, lengths.group_size)
        records.append({**report.summary(), "on_frontier": on_frontier, "theory": theory})
        if len(reports) == 1:
            _save_plot(request, report.lags.delays, f"{report.settings.workers} workers: {lengths.note}")
            stderr.print(Group(*cluster_tables(report, lengths), *theory_tables(theory), *delay_picture(report.lags.delays)))
    if len(reports) > 1:
        if request.plot is not None:
            save_comparison(request.plot, reports, best, f"{updates} updates each, {lengths.note}")
            write_line(f"plot {request.plot}")
        stderr.print(Group(*frontier_tables(reports, best, lengths)))
    return {"lengths": lengths.note, "seed": request.seed, "clusters": records}


def _lengths(request: SimulationRequest) -> tuple[RecordedRun | None, LengthSource]:
    """The run whose rollouts are simulated, if one is, and the lengths."""
    if request.plot is not None:
        check_plot_path(request.plot)
    if request.run is not None:
        recorded = RecordedRun(request.run)
        return recorded, recorded.lengths(prompts=request.prompts, group_size=request.group_size)
    assert request.lengths is not None
    prompts, group_size = request.prompts or DEFAULT_SIZE, request.group_size or DEFAULT_SIZE
    return None, lengths_from_spec(request.lengths, prompts=prompts, group_size=group_size, seed=request.seed)


def _theory(request: SimulationRequest, delays: DelayStatistics, updates: int, group_size: int) -> dict[str, Any]:
    eta = request.eta or updates**-0.5
    return theory_record(tau4=delays.moment(4), eta=eta, updates=updates, epsilon=request.epsilon, group_size=group_size)


def _delay_model(
    request: SimulationRequest, spec: str, recorded: RecordedRun | None, lengths: LengthSource
) -> tuple[DelayModel, int]:
    prompts, group_size = lengths.prompts, lengths.group_size
    if spec == RECORDED or not delay_class(spec).generates:
        if recorded is None or request.run is None:
            raise UsageError(f"--delay {spec} needs a run directory")
        rows = recorded.followed_schedule() if spec == RECORDED else recorded.existing_schedule(request.updates)
        updates = request.updates or 1 + rows[-1].update
        return ScheduleDelay(rows, request.run, prompts=prompts, updates=updates), updates
    context = DelayContext(prompts, group_size, request.seed, request.updates or DEFAULT_UPDATES)
    updates = request.updates or delay_class(spec).horizon(arguments_of(spec), context) or DEFAULT_UPDATES
    return parse_delay(spec, prompts=prompts, group_size=group_size, seed=request.seed, updates=updates), updates


def _save_plot(request: SimulationRequest, delays: DelayStatistics, title: str) -> None:
    if request.plot is not None:
        save_plot(request.plot, delays, title)
        write_line(f"plot {request.plot}")
