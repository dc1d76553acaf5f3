"""One training run from its directory to its last policy: what `gmc train` and `gmc.train` do."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gmc.config.layers import DEFAULT, RUN
from gmc.config.settings import RunSettings
from gmc.live.heartbeats import TRAINER
from gmc.ranks import ALONE, Ranks
from gmc.resolving.checks import check_settings, sends_to_followers
from gmc.resolving.memory import check_engine_share, gpu_bytes
from gmc.resolving.out_of_memory import explained_out_of_memory
from gmc.rewards.build import short_spec
from gmc.store.refused import nothing_left_when_refused
from gmc.store.resumable import require_checkpoints
from gmc.store.run_directory import RunDirectory
from gmc.training.divergence import DivergenceWatch
from gmc.training.loop import Observer, train
from gmc.training.offline import OfflineWarning
from gmc.training.opening import open_session
from gmc.training.session import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """How a training run ended.

    updates: made so far, those of earlier commands included; finished: whether all planned ones are made; version_0_share: of
    the learning rate summed over all these updates, the share that fell on rollouts of version 0, None before the first step;
    metrics: of the last update made now, empty when none was; stopped_on: the sign of `train.stop_on` that ended it, or "";
    best_version, best_score: of the policy that scored best on held-out problems, None where none were scored.
    """

    run: Path
    estimator: str
    delay: str
    updates: int
    planned_updates: int
    finished: bool
    version_0_share: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    stopped_on: str = ""
    best_version: int | None = None
    best_score: float | None = None

    def record(self) -> dict[str, object]:
        """As the one JSON object of `gmc train --json`."""
        own = {name: value for name, value in vars(self).items() if name != "metrics"}
        return {**own, "run": str(self.run), **self.metrics}


class _Watch(Observer):
    """Passes everything on, and remembers what the end of a run reports."""

    def __init__(self, observer: Observer, divergence: DivergenceWatch) -> None:
        self._observer, self.divergence = observer, divergence
        self.last: dict[str, float] = {}
        self.updates = self.without_gradient = 0

    def opened(self, version: int, planned_updates: int, responses_to_fill: int | None) -> None:
        self._observer.opened(version, planned_updates, responses_to_fill)

    def generated(self, responses: int) -> None:
        self._observer.generated(responses)

    def scored(self, responses: int) -> None:
        self._observer.scored(responses)

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        self.last = metrics
        self.updates += 1
        self.without_gradient += metrics["reward/equal_groups_share"] == 1
        self.divergence.look(update, metrics)
        self._observer.updated(update, metrics)


def train_run(
    path: Path,
    settings: RunSettings,
    *,
    resume: bool = False,
    overwrite: bool = False,
    rollouts_from: Path | None = None,
    observer: Observer | None = None,
    stopping: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
) -> TrainingResult:
    """Train in the run directory `path` until all updates are made or `stopping` says so, and publish the final policy.

    resume: go on with a run that has trained; overwrite: delete it first; rollouts_from: a run whose version-0 rollouts are
    imported; observer: is told how it goes; ranks: the processes that train together, all of which call, rank 0 alone changes
    the disk. Raises `GmcError` in one line; what is done is then on the disk, and `resume` goes on from it.
    """
    check_settings(settings)
    sends_to_followers(settings)
    if settings.model.device.startswith("cuda") and ranks.count == 1:  # several ranks leave such an engine other GPUs
        check_engine_share(settings, gpu_bytes())

    def claim() -> RunDirectory:
        resources.enter_context(nothing_left_when_refused(path, own=frozenset({f"followers/{TRAINER}.json"})))
        directory = _directory(path, settings, resume=resume, overwrite=overwrite)
        resources.enter_context(directory.lock(f"{settings.estimator['name']} at --delay {settings.delay}"))
        return directory

    with explained_out_of_memory(settings, lambda: "at the run's start or end"), ExitStack() as resources:
        directory = ranks.from_rank_0(claim)
        session = open_session(directory, settings, resources, rollouts_from=rollouts_from, stopping=stopping, ranks=ranks)
        ranks.from_rank_0(lambda: directory.save_settings("train", settings))  # only now, when the run takes them
        _log_start(session, directory)
        watch = _Watch(observer or Observer(), DivergenceWatch(settings.train.stop_on))
        watch.opened(session.version, session.planned_updates, _responses_to_fill(session, settings))
        offline = OfflineWarning(settings)
        if not session.version:
            offline.before(session.planned_updates)
        finished = _train(session, watch, lambda: ranks.any(stopping() or bool(watch.divergence.found)))
        _log_nothing_learned(watch)
        if watch.updates and finished:
            offline.look(session.updater.rate_mass)
        if finished:
            session.finish()
    return TrainingResult(
        directory.path,
        session.updater.estimator.name,
        settings.delay,
        session.version,
        session.planned_updates,
        finished,
        session.updater.rate_mass.share,
        watch.last,
        watch.divergence.found,
        session.best.version if session.best else None,
        session.best.score if session.best else None,
    )


def _directory(path: Path, settings: RunSettings, *, resume: bool, overwrite: bool) -> RunDirectory:
    directory = RunDirectory.for_training(
        path, model=settings.model.source, seed=settings.seed, resume=resume, overwrite=overwrite
    )
    if resume:
        require_checkpoints(directory)
    return directory


def _train(session: Session, observer: Observer, stopping: Callable[[], bool]) -> bool:
    failed = True
    try:
        with explained_out_of_memory(session.updater.settings, lambda: f"update {session.version}"):
            finished = train(session, observer, stopping)
        failed = False
    finally:
        for tracker in session.trackers:
            tracker.close(failed=failed)
    return finished


def _responses_to_fill(session: Session, settings: RunSettings) -> int | None:
    batches, rollout = session.source.to_fill, settings.rollout
    return None if batches is None else batches * rollout.prompts * rollout.group_size


def _log_start(session: Session, directory: RunDirectory) -> None:
    if session.version == session.planned_updates:
        return
    if session.version:
        log.info("resuming %s at update %d of %d", directory.path, session.version, session.planned_updates)
    settings = session.updater.settings
    log.info(
        "model %s (%s), problems %s (%s), reward %s (%s)",
        *(settings.model.source, _origin(settings, "model.source")),
        *(settings.problems.source, _origin(settings, "problems.source")),
        *(" + ".join(map(short_spec, settings.reward.parts)), _origin(settings, "reward.parts")),
    )


def _origin(settings: RunSettings, key: str) -> str:
    """Where a value came from, for a person: "default", "flag --model"."""
    origin = settings.origins.get(key, "given")
    said = origin.removeprefix(RUN)
    return said if said in (origin, DEFAULT) else f"{said}, by an earlier command of this run"


def _log_nothing_learned(watch: _Watch) -> None:
    if watch.updates and 2 * watch.without_gradient > watch.updates:
        log.warning(
            "%d of %d updates had equal rewards in every group and taught nothing: the problems are too hard or too easy for "
            "this model, or its answers are not found (see gmc grade)",
            watch.without_gradient,
            watch.updates,
        )
