"""Opening a training session: a fresh one on a run that holds at most rollouts, or one that goes on from a checkpoint."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gmc.config.settings import RunSettings, settings_tree
from gmc.delays.registry import delay_class
from gmc.delays.version_0 import RateMass, mass_of_run
from gmc.errors import DataError, UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.models import LanguageModel, policy_hash
from gmc.ranks import ALONE, Ranks
from gmc.resolving.build import build_model, build_parameters, build_rule, build_scorer
from gmc.rollouts.shard_fit import check_shards, planned_updates, start_version
from gmc.rollouts.source import RolloutSource
from gmc.store.best import best_of, heldout_scores
from gmc.store.checkpoints import Checkpoint, load_newest
from gmc.store.logs import GroupRef, read_metrics, read_used
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import RolloutStore
from gmc.training.anchors import Anchors, Reference
from gmc.training.optimizer import make_optimizer
from gmc.training.place import Place
from gmc.training.restoring import restore_source, restore_updater, rewind
from gmc.training.session import Session
from gmc.training.sources import open_imports, open_source
from gmc.training.trackers import Tracked, Tracker, make_trackers
from gmc.training.update import Updater

if TYPE_CHECKING:
    from gmc.training.heldout import HeldOut

log = logging.getLogger(__name__)


def open_session(
    run: RunDirectory,
    settings: RunSettings,
    resources: ExitStack,
    *,
    rollouts_from: Path | None = None,
    stopping: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
) -> Session:
    """Everything the loop needs, at the newest checkpoint if the run has one.

    On resume the logs are cut back to the checkpoint, and rollouts of later versions are set aside: they belong to a future
    that did not happen, and come again. rollouts_from: a folder of version-0 rollouts of the same model to import. What must
    be closed goes into `resources`. stopping: whether this process was asked to stop. ranks: the processes that train
    together; all open their session, rank 0 alone changes the directory. Raises `GmcError` naming what does not fit.
    """
    rule = build_rule(settings)
    place = _place(run, settings, resources, stopping, ranks)
    imports = open_imports(place, rollouts_from)
    checkpoint = _newest_checkpoint(place)
    check_shards(place.store, settings, place.model, place.initial_hash, used=_used_up(place, checkpoint))
    updater = _updater(place, rule)
    if checkpoint:
        restore_updater(checkpoint, updater, place)
    version = checkpoint.update if checkpoint else 0
    ranks.from_rank_0(lambda: rewind(place, version))  # only now, when everything in the checkpoint fits
    updater.planned_updates = planned_updates(settings, place.store)

    source = open_source(place, updater, imports)
    updater.knows_lags = source.knows_lags
    if checkpoint:
        used = read_used(run.used)
        restore_source(checkpoint, source, used, place)
        _say_new_horizon(checkpoint, updater)
        updater.rate_mass = _mass_so_far(place, source, used)
    source.check_start(version)
    live = delay_class(settings.delay).live
    session = Session(
        run,
        updater,
        source,
        version,
        saved=version if checkpoint else None,
        publish_every=settings.live.publish_every if live else settings.train.publish_every,
        trackers=_trackers(place, version),
        samples_every=settings.train.publish_every,
        heldout=_heldout(place, source, updater),
        best=best_of(heldout_scores(read_metrics(run.metrics))),
    )
    resources.callback(session.writer.close)
    if live:
        session.publish(wait=True)  # followers have something to load, and a resumed trainer's weights are theirs again
    else:
        session.publish_again()
    return session


def _mass_so_far(place: Place, source: RolloutSource, used: Sequence[Sequence[GroupRef]]) -> RateMass:
    """What the updates before the checkpoint learned from version 0; nothing where that is not known."""
    first = start_version(place.settings, place.store)
    if first is None:
        return RateMass()
    versions = {stored.batch: stored.version - first for stored in place.store.list()} | dict(source.in_flight)
    return mass_of_run(used, versions, read_metrics(place.run.metrics))


def _place(run: RunDirectory, settings: RunSettings, resources: ExitStack, stopping: Callable[[], bool], ranks: Ranks) -> Place:
    model = build_model(settings, ranks)
    _require_trainable(model)
    store = RolloutStore(run.rollouts, run.run_id, context_tokens=model.context_tokens)

    def bind() -> str:
        run.bind_weights(policy_hash(model))
        store.clean()
        return run.record.weights_hash

    return Place(run, settings, model, store, ranks.from_rank_0(bind), resources, stopping, ranks)


def _require_trainable(model: LanguageModel) -> None:
    if model.quantized and model.adapter is None:
        raise UsageError(
            f"{model.source}: its weights are quantized ({model.quantized}), and training moves only those that are not; "
            "train an adapter over them with --set model.lora.rank=16, or name the model that it was made from"
        )


def _newest_checkpoint(place: Place) -> Checkpoint | None:
    checkpoint = load_newest(place.run.checkpoints, run_id=place.run.run_id, ranks=place.ranks)
    if checkpoint and "source" not in checkpoint.extra:
        raise DataError(
            f"{checkpoint.path}: a checkpoint of gmc 0.1, which this version cannot go on from; resume with gmc 0.1"
        )
    done, planned = checkpoint.update if checkpoint else 0, place.settings.train.updates
    if planned < done:
        raise UsageError(f"{place.run.path}: {done} updates are done, more than --updates {planned}; give {done} or more")
    return checkpoint


def _say_new_horizon(checkpoint: Checkpoint, updater: Updater) -> None:
    """Warn where the updates so far had the learning rates of another number of planned updates. (Live runs do not keep it.)"""
    planned = checkpoint.extra["source"].get("planned_updates", updater.planned_updates)
    optimizer = updater.settings.optimizer
    if optimizer.schedule != "constant" and planned != updater.planned_updates and checkpoint.update > optimizer.warmup_updates:
        log.warning(
            "the %d updates so far had learning rates of a %s schedule over %d updates, those to come have that over %d; for "
            "one schedule throughout, train anew: gmc train --run ANOTHER --updates %d",
            *(checkpoint.update, optimizer.schedule, planned, updater.planned_updates, updater.planned_updates),
        )


def _used_up(place: Place, checkpoint: Checkpoint | None) -> set[int]:
    """Batches that the updates before the checkpoint used."""
    used = read_used(place.run.used, checkpoint.update) if checkpoint else []
    return {group.batch for groups in used for group in groups}


def _updater(place: Place, rule: Estimator) -> Updater:
    """The updater of a fresh run, the model still at version 0. Its horizon is set when the rollouts on disk are known."""
    settings, parameters = place.settings, build_parameters(place.settings, place.model, place.ranks)
    place.resources.callback(parameters.close)
    return Updater(
        parameters,
        build_scorer(settings, place.model, parameters),
        rule,
        make_optimizer(parameters.tensors, settings.optimizer),
        Anchors(parameters, rule.anchor_lag),
        settings,
        planned_updates=settings.train.updates,
        reference=Reference(parameters) if Need.REFERENCE_LOGP in rule.needs else None,
    )


def _heldout(place: Place, source: RolloutSource, updater: Updater) -> "HeldOut | None":
    if not place.settings.train.eval_every:
        return None
    from gmc.training.heldout import open_heldout  # evaluation's statistics take a second to import

    with updater.parameters.whole():  # its engine may try the network
        return open_heldout(place, source.engine)


def _trackers(place: Place, version: int) -> list[Tracker]:
    if not place.ranks.is_rank_0:
        return []
    run, settings = place.run, place.settings
    return make_trackers(settings.train.trackers, Tracked(run.run_id, run.path, settings_tree(settings), version))
