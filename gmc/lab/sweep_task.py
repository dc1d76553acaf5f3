"""One run of a sweep in one process: its version-0 rollouts, training, evaluation along the way and at the end.

A task is plain JSON, so that it reaches a process by a pipe, Ray or Slurm alike. All steps go on where a kill left them.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import filelock

from gmc.config.layers import flatten
from gmc.config.settings import OTHERS, EvalSettings, RunSettings
from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.errors import DataError, GmcError
from gmc.lab.sweep_file import Curve
from gmc.live.listing import SWEEP_ROLLOUTS, SWEEP_RUNS
from gmc.store.files import make_directory, strict_json
from gmc.store.run_directory import RUN_FILE, RunDirectory

log = logging.getLogger(__name__)

SHARED = ("seed", "model", "problems", "rollout")
"""Sections that decide a version-0 rollout."""
LOCK_POLL_SECONDS = 0.5

Report = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


class StoppedError(Exception):
    """The run was asked to stop; what is done is on the disk."""


@dataclass(frozen=True)
class Task:
    """folder: of the run; settings, origins: complete; curve: how it is evaluated along the way; base: folder and number of
    shared version-0 batches, None to sample its own; base_evals: folder of the initial model's results."""

    run: str
    folder: str
    settings: Mapping[str, Any]
    origins: Mapping[str, str]
    curve: Mapping[str, Any] | None
    base: tuple[str, int] | None
    base_evals: str

    @classmethod
    def of(cls, run: str, folder: Path, settings: RunSettings, curve: Curve | None) -> "Task":
        """The task of one planned run in a sweep's folder."""
        needed = first_batches(settings)
        return cls(
            run=run,
            folder=str(folder / SWEEP_RUNS / run),
            settings=settings.model_dump(mode="json"),
            origins=dict(settings.origins),
            curve=None if curve is None else curve.model_dump(),
            base=(str(folder / SWEEP_ROLLOUTS / base_key(settings)), needed) if needed else None,
            base_evals=str(folder / "evals"),
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def with_base(self, batches: Mapping[str, int]) -> "Task":
        """The same with as many version-0 batches as its set holds, or without a set that is not there."""
        if self.base is None or self.base[0] not in batches:
            return replace(self, base=None)
        return replace(self, base=(self.base[0], batches[self.base[0]]))

    def run_settings(self) -> RunSettings:
        """The settings with their origins."""
        return RunSettings.model_validate(self.settings).with_origins(self.origins)


def base_key(settings: RunSettings) -> str:
    """Names the set of version-0 rollouts that a run can start from: equal for runs of every rule and delay."""
    tree = settings.model_dump(mode="json", include=set(SHARED))
    decides = {key: value for key, value in flatten(tree) if key != "rollout.batches"}
    return hashlib.sha256(strict_json(decides).encode()).hexdigest()[:16]


def first_batches(settings: RunSettings) -> int:
    """How many batches version 0 samples before the first update, 0 where lengths or chance decide it."""
    delay = delay_class(settings.delay)
    if not delay.generates or delay.live:
        return 0
    rollout, updates = settings.rollout, settings.train.updates
    context = DelayContext(rollout.prompts, rollout.group_size, settings.seed, updates)
    return delay.parse(arguments_of(settings.delay), context).first_launches or 0


def execute(task: Task, report: Report, stopping: Callable[[], bool]) -> dict[str, Any]:
    """Make the run, or what is left of it; returns what was measured, as the fields of a `RunRecord`.

    Raises `StoppedError` when `stopping` says so, `GmcError` when a sign of `train.stop_on` ended the run, and whatever
    training and evaluation raise.
    """
    from gmc.lab.results_of_run import collect_run

    settings, folder = task.run_settings(), Path(task.folder)
    started = time.perf_counter()
    if task.base is not None:
        _fill_base(Path(task.base[0]), settings, task.base[1], report, stopping)
    _train(folder, settings, None if task.base is None else Path(task.base[0]), report, stopping)
    trained = time.perf_counter()
    base = _evaluate(task, folder, settings, report, stopping)
    found = collect_run(folder, clip_norm=settings.optimizer.clip_norm, base=base)
    if found.updates < settings.train.updates:
        raise DataError(f"{folder}: {found.updates} of {settings.train.updates} updates are logged; remove the folder")
    now = time.perf_counter()
    seconds = found.seconds | {"evaluation": round(now - trained, 2), "here": round(now - started, 2)}
    content = {key: value for key, value in vars(found).items() if key != "updates"}
    return content | {"seconds": seconds}


def _fill_base(folder: Path, settings: RunSettings, batches: int, report: Report, stopping: Callable[[], bool]) -> None:
    """Sample the shared rollouts that are missing. Of several processes one does it and the others wait."""
    from gmc.generation.filling import fill_run
    from gmc.store.shards.store import scan

    own = settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"batches": batches})})
    responses, done = batches * settings.rollout.prompts * settings.rollout.group_size, 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        _stop_when_asked(stopping)
        report("rollouts", done, responses)

    make_directory(folder.parent)
    with _Turn(folder.parent / f"{folder.name}.lock", stopping):
        there = (folder / RUN_FILE).is_file()
        if not there or len(scan(RunDirectory.open(folder).rollouts)) < batches:
            fill_run(folder, own, resume=there, advance=advance)


class _Turn:
    """A lock that is waited for, and that is left when the process is asked to stop."""

    def __init__(self, path: Path, stopping: Callable[[], bool]) -> None:
        self._lock, self._stopping = filelock.FileLock(path), stopping

    def __enter__(self) -> None:
        while True:
            _stop_when_asked(self._stopping)
            try:
                self._lock.acquire(timeout=LOCK_POLL_SECONDS)
                return
            except filelock.Timeout:
                continue

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


def _train(folder: Path, settings: RunSettings, base: Path | None, report: Report, stopping: Callable[[], bool]) -> None:
    from gmc.training.loop import Observer
    from gmc.training.run import train_run

    class Reporter(Observer):
        def updated(self, update: int, metrics: dict[str, float]) -> None:
            report("updates", update + 1, settings.train.updates)

    resume = (folder / RUN_FILE).is_file()
    result = train_run(folder, settings, resume=resume, rollouts_from=base, observer=Reporter(), stopping=stopping)
    if result.stopped_on:
        raise GmcError(f"train.stop_on: {result.stopped_on}")
    if not result.finished:
        raise StoppedError


def _evaluate(task: Task, folder: Path, settings: RunSettings, report: Report, stopping: Callable[[], bool]) -> list[Any]:
    """Evaluate the last policy, and with a curve every published one; returns the initial model's results on the curve."""
    from gmc.evaluation.request import Request
    from gmc.evaluation.run import evaluate_run

    def watch(candidate: Any, asked: Any) -> Callable[[float | None, int], None]:
        done = 0

        def progress(share: float | None, new: int) -> None:
            nonlocal done
            done += new
            _stop_when_asked(stopping)
            report(f"evaluation of {candidate.label}", done, asked.responses)

        return progress

    run, base = RunDirectory.open(folder), []
    if task.curve is not None:
        own = settings.model_copy(update={"eval": _curve_settings(settings.eval, Curve(**task.curve))})
        request = Request(run=run, policy="all", resume=True)
        evaluate_run(request, own, watch=watch)
        shared = Path(task.base_evals)
        make_directory(shared)
        with _Turn(shared / "lock", stopping):
            base = evaluate_run(replace(request, run=None, policy="latest", out=shared), own, watch=watch).results
    evaluate_run(Request(run=run, policy="latest", resume=True), settings, watch=watch)
    return base


def _curve_settings(settings: EvalSettings, curve: Curve) -> EvalSettings:
    asked = {"samples": {OTHERS: curve.samples}, "greedy": curve.greedy, "limit": curve.limit, "pass_k": []}
    return settings.model_copy(update=asked)


def _stop_when_asked(stopping: Callable[[], bool]) -> None:
    if stopping():
        raise StoppedError


def seconds_of(settings: RunSettings, curve: Curve | None) -> float:
    """A rough forecast of one run of the embedded model on one CPU core, in seconds; NaN for another model.

    Of README's main job as measured on two cores of a cloud machine, gmc 0.2: 0.60 s an update of 64 responses, sampling
    included, and 6.8 ms an evaluated response. Other machines differ by two.
    """
    if settings.model.source != "embedded":
        return math.nan
    rollout, evaluation = settings.rollout, settings.eval
    responses = rollout.prompts * rollout.group_size * (settings.train.updates + first_batches(settings))
    asked = 500 * (evaluation.samples_of("arithmetic") + evaluation.greedy)
    if curve:
        asked += (curve.limit or 500) * (curve.samples + curve.greedy) * (settings.train.updates // curve.every)
    return responses * 0.60 / 64 + asked * 0.0068
