"""Running a study: which runs are missing, making them, recording each as it ends. What `gmc lab sweep` does."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from gmc.errors import GmcError, UsageError
from gmc.lab.results import FAILED, FINISHED, Results, ResultsFile, RunRecord, is_same_run, read_results
from gmc.lab.selection import choose, chosen_elsewhere
from gmc.lab.sweep_file import Sweep, read_sweep
from gmc.lab.sweep_launch import Event, Launcher, load_launcher
from gmc.lab.sweep_plan import PlannedRun, Planner
from gmc.lab.sweep_task import Task, seconds_of
from gmc.store.files import make_directory, write_text
from gmc.store.run_directory import library_versions

log = logging.getLogger(__name__)

RESULTS = "results.jsonl"


class SweepView:
    """Is told how a sweep goes on; a command draws it, this one does nothing."""

    def stage(self, name: str, runs: Sequence[PlannedRun], missing: Sequence[PlannedRun]) -> None:
        """A stage begins: its runs, and those that are still to be made."""

    def happened(self, event: Event) -> None:
        """Something happened to a run, or nothing for a while."""

    def recorded(self, record: RunRecord) -> None:
        """A run is in the results file."""


@dataclass(frozen=True)
class Study:
    """A sweep file ready to be run. tuned_on: seeds on which another sweep chose settings that this one takes."""

    path: Path
    sweep: Sweep
    planner: Planner
    tuned_on: frozenset[int] = frozenset()

    def runs(self, records: Sequence[RunRecord]) -> tuple[list[PlannedRun], list[PlannedRun]]:
        """The runs of the tuning, and those of the verdict as far as the records decide them."""
        tuning = self.planner.tuning()
        known = [record for run in tuning if (record := find(run, records)) is not None]
        return tuning, self.planner.verdict(choose(self.sweep, known))

    def verdict_ahead(self, records: Sequence[RunRecord]) -> list[PlannedRun]:
        """The verdict's runs as far as they can be foreseen: what is not chosen yet stands at its first values."""
        known = [record for run in self.planner.tuning() if (record := find(run, records)) is not None]
        return self.planner.verdict({**self.planner.first_values(), **choose(self.sweep, known)})


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep ended. finished, failed: runs of the study in the results file; missing: those not made, for it was
    stopped; without_choice: whether an arm has no verdict because no cell of it finished its tuning."""

    results: Path
    finished: int
    failed: int
    missing: int
    without_choice: bool

    def record(self) -> dict[str, object]:
        """As the one JSON object of `gmc lab sweep --json`."""
        return {**vars(self), "results": str(self.results)}


@dataclass(frozen=True)
class Options:
    """How a study is run. jobs: side by side; retry: make failed runs again; launcher_options: the launcher's own."""

    jobs: int = 1
    launcher: str = "local"
    launcher_options: Mapping[str, str] = field(default_factory=dict)
    retry: bool = False


def open_study(path: Path, *, pending: bool = False) -> Study:
    """Read and check a sweep file, and what another sweep chose for it.

    pending: let what the other sweep has not chosen yet stand at its default, for a look ahead. Raises `UsageError` or
    `DataError` in one line, also for a verdict on a seed that chose something.
    """
    sweep = read_sweep(path)
    if sweep.tuned is None:
        return Study(path, sweep, Planner(sweep, str(path)))
    source = path.parent / sweep.tuned
    if pending and not source.is_file():
        return Study(path, sweep, Planner(sweep, str(path)))
    results = read_results(source)
    tuned_on = results.tuning_seeds
    if spent := sorted({*sweep.seeds} & tuned_on):
        raise UsageError(f"{path}: seed {spent[0]} chose settings in {source}; a verdict needs seeds that chose nothing")
    try:
        chosen = chosen_elsewhere(results, sweep)
    except UsageError:
        if not pending:
            raise
        chosen = {}
    return Study(path, sweep, Planner(sweep, str(path), chosen), tuned_on)


def default_folder(study: Study) -> Path:
    """Where a study's runs and results lie unless another folder is named."""
    return Path("runs") / "lab" / study.sweep.name


def find(run: PlannedRun, records: Sequence[RunRecord]) -> RunRecord | None:
    """The newest record of a planned run."""
    same = (r for r in reversed(records) if r.seed == run.seed and is_same_run(run.flat, run.settings.origins, r))
    return next((r for r in same if r.arm == run.cell.arm and r.stage == run.stage), None)


def read_earlier(results: Path) -> Sequence[RunRecord]:
    """The records of a results file that need not exist yet."""
    return read_results(results).records if results.is_file() and results.stat().st_size else []


def run_sweep(
    study: Study,
    folder: Path,
    options: Options,
    *,
    results: Path | None = None,
    view: SweepView | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> SweepOutcome:
    """Make the runs that the results file lacks, stage after stage, and record each.

    folder: where runs, shared rollouts and logs lie; results: the file, FOLDER/results.jsonl by default; stopping: polled
    often; what is under way then stops in good order. Raises `GmcError` when another process works on the same folder, and
    for what stops all runs alike; a run that fails is recorded.
    """
    file = results or folder / RESULTS
    make_directory(folder)
    with _only_one(folder), load_launcher(options.launcher)(folder, options.jobs, options.launcher_options) as launcher:
        work = _Work(study, folder, file, options, launcher, view or SweepView(), stopping)
        tuning = study.planner.tuning()
        if tuning:
            work.make("tuning", tuning)
        if not stopping():
            work.make("verdict", work.study.runs(work.records)[1])
        return work.outcome()


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise GmcError(f"{folder}: another sweep works in this folder; wait for it, stop it, or use another --out") from error
    try:
        yield
    finally:
        lock.release()


class _Work:
    """The runs of one sweep while it goes on."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        file: Path,
        options: Options,
        launcher: Launcher,
        view: SweepView,
        stopping: Callable[[], bool],
    ) -> None:
        self.study, self._folder, self._options = study, folder, options
        self._launcher, self._view, self._stopping = launcher, view, stopping
        self.records = [*read_earlier(file)]
        first = (study.planner.tuning() or study.planner.verdict({}))[0]
        self._file = ResultsFile(file, study.sweep, first.settings, sorted(study.tuned_on))

    def make(self, stage: str, runs: Sequence[PlannedRun]) -> None:
        """Make and record the runs of a stage that are not recorded yet."""
        missing = [run for run in runs if self._is_missing(run)]
        self._view.stage(stage, runs, missing)
        planned = {run.run: run for run in missing}
        tasks = [Task.of(run.run, self._folder, run.settings, run.curve) for run in missing]
        for event in self._launcher.run(_with_common_bases(tasks), self._stopping):
            self._view.happened(event)
            if event.kind in (FINISHED, FAILED):
                self._record(planned[event.run], event)

    def outcome(self) -> SweepOutcome:
        """What is in the results file now."""
        tuning, verdict = self.study.runs(self.records)
        found = [find(run, self.records) for run in (*tuning, *verdict)]
        cells = len({run.cell.key for run in verdict})
        return SweepOutcome(
            results=self._file.path,
            finished=sum(record is not None and record.finished for record in found),
            failed=sum(record is not None and not record.finished for record in found),
            missing=sum(record is None for record in found),
            without_choice=cells < self.study.planner.verdict_cells(),
        )

    def _is_missing(self, run: PlannedRun) -> bool:
        record = find(run, self.records)
        if record is None or (self._options.retry and not record.finished):
            return True
        self._remove_when_done(record)  # a kill may have come between recording and removing
        return False

    def _record(self, run: PlannedRun, event: Event) -> None:
        if event.trace:
            write_text(self._folder / "logs" / f"{run.run}.txt", event.trace)
        record = RunRecord(
            run=run.run,
            arm=run.cell.arm,
            stage=run.stage,
            seed=run.seed,
            settings=run.flat,
            status=event.kind,
            values=dict(run.cell.values),
            chosen=dict(run.cell.chosen),
            error=" ".join(event.error.split()),
            settings_hash=run.settings.hash,
            versions=library_versions(),
            **event.found,
        )
        self._file.append(record)
        self.records.append(record)
        self._remove_when_done(record)
        self._view.recorded(record)

    def _remove_when_done(self, record: RunRecord) -> None:
        folder = self._folder / "runs" / record.run
        if record.finished and not self.study.sweep.keep and folder.is_dir():
            shutil.rmtree(folder)


def _with_common_bases(tasks: Sequence[Task]) -> list[Task]:
    """Tasks that start from one set of version-0 rollouts fill it once, to what the longest delay among them needs.

    A set that only one run would use is not made: the run samples its own.
    """
    needed: dict[str, list[int]] = {}
    for task in tasks:
        if task.base:
            needed.setdefault(task.base[0], []).append(task.base[1])
    shared = {folder: max(batches) for folder, batches in needed.items() if len(batches) > 1 or Path(folder).exists()}
    return [task.with_base(shared) for task in tasks]


@dataclass(frozen=True)
class Forecast:
    """What a study comes to. seconds: of one core, of the runs still to be made; None where no run of such a model has been
    recorded and nothing is known of it. source: where the figure comes from."""

    runs: int
    done: int
    seconds: float | None
    source: str


def forecast(study: Study, runs: Sequence[PlannedRun], records: Sequence[RunRecord]) -> Forecast:
    """Forecast the runs of a stage from the runs recorded so far, and else from the figures of `seconds_of`."""
    missing = [run for run in runs if find(run, records) is None]
    rough = [seconds_of(run.settings, study.sweep.curve) for run in missing]
    factors = [factor for record in records if (factor := _factor(record, study, runs)) is not None]
    if any(seconds != seconds for seconds in rough):
        return Forecast(len(runs), len(runs) - len(missing), None, "unknown for this model until a run is recorded")
    factor = sum(factors) / len(factors) if factors else 1.0
    source = f"from {len(factors)} recorded runs" if factors else "a rough figure; machines differ by two"
    return Forecast(len(runs), len(runs) - len(missing), factor * sum(rough), source)


def _factor(record: RunRecord, study: Study, runs: Sequence[PlannedRun]) -> float | None:
    """How much longer a recorded run took than the rough figure says."""
    run = next((run for run in runs if find(run, [record]) is not None), None)
    if run is None or not record.finished:
        return None
    return sum(record.seconds.get(phase, 0.0) for phase in ("training", "evaluation")) / seconds_of(
        run.settings, study.sweep.curve
    )


def results_of(path: Path) -> Results:
    """The results of a sweep by its folder or its file."""
    return read_results(path / RESULTS if path.is_dir() else path)
