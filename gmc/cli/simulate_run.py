"""What `gmc simulate-delay` does once its options are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from gmc.cli.output import say, stderr
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
from gmc.simulator.lengths import LengthSource, lengths_from_spec
from gmc.simulator.plots import check_plot_path, save_plot
from gmc.simulator.recorded import RecordedRun
from gmc.simulator.simulate import simulate
from gmc.simulator.statistics import DelayStatistics
from gmc.simulator.theory import theory_record
from gmc.store.run_directory import RUN_FILE, RunDirectory

RECORDED = "recorded"
"""In place of a delay: what the run's updates really used."""
MOST_UPDATES = 1_000_000
MOST_GROUPS = 10_000_000


@dataclass(frozen=True)
class CommonRequest:
    """Options that both ways of simulating share, as the user gave them."""

    run: Path | None
    lengths: str | None
    updates: int | None
    prompts: int | None
    group_size: int | None
    seed: int
    epsilon: float
    eta: float | None
    plot: Path | None

    def check(self) -> None:
        if (self.run is None) == (self.lengths is None):
            raise UsageError(
                "gmc simulate-delay: say where lengths come from: a run directory, or --lengths lognormal:570:0.6, and not both"
            )
        if self.eta is not None and not 0 < self.eta <= 1:
            raise UsageError(f"--eta {self.eta:g}: must be above 0 and at most 1")
        if self.updates is not None and self.updates > MOST_UPDATES:
            raise UsageError(f"--updates {self.updates}: at most {MOST_UPDATES:,}")
        if self.plot is not None:
            check_plot_path(self.plot)

    def length_source(self, recorded: RecordedRun | None) -> LengthSource:
        if recorded is not None:
            return recorded.lengths(prompts=self.prompts, group_size=self.group_size)
        assert self.lengths is not None
        prompts, group_size = self.prompts or DEFAULT_SIZE, self.group_size or DEFAULT_SIZE
        return lengths_from_spec(self.lengths, prompts=prompts, group_size=group_size, seed=self.seed)

    def theory(self, delays: DelayStatistics, updates: int, group_size: int) -> dict[str, Any]:
        return theory_record(
            tau4=delays.moment(4),
            eta=self.eta or updates**-0.5,
            updates=updates,
            epsilon=self.epsilon,
            group_size=group_size,
        )


def run_delay(common: CommonRequest, spec: str, schedule: Path | None, *, overwrite: bool) -> dict[str, Any]:
    """Simulate a delay model, show and write what comes out; returns the record of `--json`."""
    common.check()
    if spec != RECORDED:
        delay_class(spec)
    recorded = RecordedRun(common.run) if common.run is not None else None
    lengths = common.length_source(recorded)
    delays, updates = _delay_model(common, spec, recorded, lengths)
    if updates * lengths.prompts > MOST_GROUPS:
        raise UsageError(f"{updates:,} updates of {lengths.prompts:,} groups: a schedule holds at most {MOST_GROUPS:,} groups")
    with progress_bar("simulation", updates, "updates") as bar:
        result = simulate(delays, lengths, updates=updates, on_update=bar.advance)
    theory = common.theory(result.delays, updates, lengths.group_size)
    path = schedule or _default_schedule(common.run)
    # Files come before the report, so that a closed pipe behind it cannot lose them.
    clash = path.exists() and not overwrite and read_schedule(path)[0] != result.schedule
    if not clash:
        write_schedule(path, result.schedule)
    _save_plot(common, result.delays, f"--delay {spec}: {lengths.note}")
    stderr.print(Group(*delay_tables(spec, lengths, result), *theory_tables(theory), *delay_picture(result.delays)))
    if clash:
        raise UsageError(f"{path}: holds another schedule, left alone; use --overwrite, or --schedule with another name")
    say(f"\nschedule {path}: train on it with gmc train --delay schedule:{path}")
    record = {"delay_spec": spec, "lengths": lengths.note, "seed": common.seed, **result.summary(), "theory": theory}
    return {**record, "schedule": str(path)}


def run_cluster(common: CommonRequest, workers: str, max_ahead: str, options: dict[str, Any]) -> dict[str, Any]:
    """Simulate one cluster or compare several; returns the record of `--json`."""
    common.check()
    for name in ("slots", "tokens_per_second", "update_seconds"):
        if name not in options:
            raise UsageError(f"--workers needs --{name.replace('_', '-')} too")
    sizes = [(w, a) for w in _numbers("--workers", workers, 1) for a in _numbers("--max-ahead", max_ahead, 0)]
    if len(sizes) > 1 and common.plot is not None:
        raise UsageError("--plot draws one cluster: give one number for --workers and --max-ahead")
    recorded = RecordedRun(common.run) if common.run is not None else None
    lengths = common.length_source(recorded)
    updates = common.updates or DEFAULT_UPDATES
    reports = []
    with progress_bar("simulation", updates * len(sizes), "updates") as bar:
        for count, ahead in sizes:
            settings = ClusterSettings(
                workers=count, max_ahead=ahead, prompts=lengths.prompts, group_size=lengths.group_size, **options
            )
            reports.append(simulate_cluster(settings, lengths, updates=updates, seed=common.seed, on_update=bar.advance))
    best = frontier(reports)
    records = []
    for report, on_frontier in zip(reports, best, strict=True):
        theory = common.theory(report.lags.delays, updates, lengths.group_size)
        records.append({**report.summary(), "on_frontier": on_frontier, "theory": theory})
        if len(reports) == 1:
            _save_plot(common, report.lags.delays, f"{report.settings.workers} workers: {lengths.note}")
            stderr.print(Group(*cluster_tables(report, lengths), *theory_tables(theory), *delay_picture(report.lags.delays)))
    if len(reports) > 1:
        stderr.print(Group(*frontier_tables(reports, best, lengths)))
    return {"lengths": lengths.note, "seed": common.seed, "clusters": records}


def _delay_model(
    common: CommonRequest, spec: str, recorded: RecordedRun | None, lengths: LengthSource
) -> tuple[DelayModel, int]:
    prompts, group_size = lengths.prompts, lengths.group_size
    if spec == RECORDED or not delay_class(spec).generates:
        if recorded is None or common.run is None:
            raise UsageError(f"--delay {spec} needs a run directory")
        rows = recorded.followed_schedule() if spec == RECORDED else recorded.existing_schedule(common.updates)
        updates = common.updates or 1 + rows[-1].update
        return ScheduleDelay(rows, common.run, prompts=prompts, updates=updates), updates
    context = DelayContext(prompts, group_size, common.seed, common.updates or DEFAULT_UPDATES)
    updates = common.updates or delay_class(spec).horizon(arguments_of(spec), context) or DEFAULT_UPDATES
    return parse_delay(spec, prompts=prompts, group_size=group_size, seed=common.seed, updates=updates), updates


def _default_schedule(run: Path | None) -> Path:
    if run is not None and (run / RUN_FILE).is_file():
        return RunDirectory.open(run).schedule
    return Path("schedule.parquet")


def _save_plot(common: CommonRequest, delays: DelayStatistics, title: str) -> None:
    if common.plot is not None:
        save_plot(common.plot, delays, title)
        say(f"plot {common.plot}")


def _numbers(option: str, text: str, least: int) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise UsageError(f"{option} {text}: write whole numbers of at least {least}, separated by commas, such as 8,16,32")
    return [int(part) for part in dict.fromkeys(parts)]
