"""Opening the source of a session's rollouts: followers for a live delay, else this process's own engine or the shards."""

import logging
import os
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.live.ending import unmark_ended
from gmc.live.heartbeats import TRAINER, HeartbeatWriter
from gmc.models import tokenizer_hash
from gmc.parameters.base import Parameters
from gmc.resolving.build import build_delay, build_engine, build_maker
from gmc.resolving.checks import sends_to_followers
from gmc.resolving.devices import Places, ranks_on_this_machine, sampling_places
from gmc.rollouts.elsewhere import Elsewhere
from gmc.rollouts.inflight import InflightSource
from gmc.rollouts.live import LiveSource
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.scheduled import ScheduledSource
from gmc.rollouts.shard_fit import ShardCheck, shard_contents, start_version
from gmc.rollouts.source import RolloutSource
from gmc.store.shards.imports import Imports
from gmc.store.shards.launches import LaunchLog
from gmc.training.place import Place
from gmc.training.samplers import SamplerPool
from gmc.training.update import Updater
from gmc.training.weight_sender import WeightSender

log = logging.getLogger(__name__)


def open_imports(place: Place, rollouts_from: Path | None) -> Imports | None:
    """Rollouts from elsewhere, to be imported one by one; all at once where nothing asks for single batches."""
    if rollouts_from is None:
        return None
    delay = delay_class(place.settings.delay)
    imports = Imports(
        place.store,
        rollouts_from,
        weights_hash=place.initial_hash,
        tokenizer_hash=tokenizer_hash(place.model.tokenizer),
        check=partial(ShardCheck(place.settings, place.model, place.initial_hash), run_id=None),
        every_version=delay.needs_existing_shards,
        start_version=max(0, place.settings.train.start_version),
    )
    which = "" if delay.needs_existing_shards else " of version 0"
    log.info(
        "%s: %d rollout batches%s are there; those that training asks for are not sampled",
        rollouts_from,
        len(imports.batches),
        which,
    )
    if delay.live or not delay.generates:
        place.ranks.from_rank_0(lambda: [imports.copy(batch) for batch in imports.batches])
    return imports


def open_source(place: Place, updater: Updater, imports: Imports | None) -> RolloutSource:
    """The source that the delay asks for, at update 0."""
    delay = delay_class(place.settings.delay)
    if delay.live:
        return _live(place)
    return _inflight(place, updater, imports) if delay.in_flight else _scheduled(place, updater, imports)


def _scheduled(place: Place, updater: Updater, imports: Imports | None) -> ScheduledSource:
    settings, ranks = place.settings, place.ranks
    delay = delay_class(settings.delay)
    first = start_version(settings, place.store)
    if first is None:
        _require_no_lags(updater.estimator)
    elsewhere = _elsewhere(place, updater.parameters)
    maker = _maker(place, updater) if delay.generates and elsewhere is None else None
    shards = shard_contents(place.store, first) if delay.needs_existing_shards else ()
    model = build_delay(settings, updater.planned_updates, shards)
    return ScheduledSource(
        place.store,
        model,
        maker,
        spec=settings.delay,
        planned_updates=updater.planned_updates,
        stopping=lambda: ranks.any(place.stopping()),
        ranks=ranks,
        start_version=first,
        import_batch=imports.copy if imports else lambda batch: None,
        importable=imports.batches if imports else (),
        elsewhere=elsewhere,
        launches=LaunchLog(place.run.launches),
    )


def _require_no_lags(rule: Estimator) -> None:
    """Refuse a rule that needs the delays of rollouts of which nobody knows them."""
    if Need.LAGS in rule.needs:
        raise UsageError(
            f"estimator {rule.name}: it needs the delay of every rollout, and which of the imported versions this run starts "
            "from is not known; say it with --start-version, or take another rule"
        )


def _elsewhere(place: Place, parameters: Parameters) -> Elsewhere | None:
    """Sampling in processes of its own, where the settings or the engine ask for it; rank 0 starts them."""
    settings, ranks = place.settings, place.ranks
    places = ranks.from_rank_0(lambda: _places(settings, ranks.count))
    if not places:
        return None
    size = sum(tensor.numel() * tensor.element_size() for tensor in parameters.own.values())
    samplers = SamplerPool(place.run, settings, places, size)
    place.resources.callback(samplers.close)
    rollout = settings.rollout
    return Elsewhere(
        samplers,
        place.store,
        ranks,
        lambda: _copied(parameters, settings.train.policy_dtype),
        prompts=rollout.prompts,
        group_size=rollout.group_size,
    )


def _copied(parameters: Parameters, policy_dtype: str) -> dict[str, Tensor]:
    """What training changes, whole and out of the optimizer's way; empty on a rank other than 0, which only takes part."""
    keep = parameters.ranks.is_rank_0
    dtype = getattr(torch, policy_dtype) if parameters.model.adapter is None else torch.float32
    return {
        name: tensor.to("cpu", dtype, copy=True).contiguous()
        for name, tensor in parameters.full()
        if keep and name in parameters.own
    }


def _places(settings: RunSettings, ranks: int) -> Places:
    here = ranks_on_this_machine(os.environ)
    return sampling_places(settings, ranks=ranks, ranks_here=here, gpus=torch.cuda.device_count())


def _inflight(place: Place, updater: Updater, imports: Imports | None) -> InflightSource:
    settings, ranks = place.settings, place.ranks
    if ranks.count > 1:
        raise UsageError(
            f"--delay {settings.delay} with {ranks.count} ranks: it samples in one process; train without torchrun"
        )
    if imports is not None:
        raise UsageError(
            f"--delay {settings.delay} with --rollouts: it samples every response itself, by all versions that stand by then, "
            "and uses no others; leave --rollouts out"
        )
    if settings.rollout.devices:
        raise UsageError(
            f"--delay {settings.delay} with rollout.devices: it samples where it trains; leave rollout.devices out"
        )
    clock = build_delay(settings, updater.planned_updates).flight_clock()
    return InflightSource(place.store, clock, _maker(place, updater), spec=settings.delay, stopping=place.stopping)


def _maker(place: Place, updater: Updater) -> RolloutMaker:
    run, settings = place.run, place.settings
    with updater.parameters.whole():  # the engine tries the network
        engine = build_engine(settings, place.model, run.engine_log("train"))
    place.resources.callback(engine.close)
    maker = build_maker(run.run_id, settings, place.model, updater.scorer, engine, place.initial_hash)
    place.resources.callback(maker.close)
    for note in maker.problem_set.notes:
        log.info(note)
    return maker


def _live(place: Place) -> LiveSource:
    run, settings = place.run, place.settings
    heartbeat = HeartbeatWriter(run.followers, TRAINER, settings.live.lease_seconds) if place.ranks.is_rank_0 else None
    if heartbeat is not None:
        unmark_ended(run)
        place.resources.enter_context(heartbeat.beating())
        if sends_to_followers(settings):
            place.resources.enter_context(WeightSender(run, torch.device(settings.model.device).index or place.ranks.local))
    return LiveSource(
        run,
        place.store,
        heartbeat,
        prompts=settings.rollout.prompts,
        patience_seconds=settings.live.patience_seconds,
        keep_every=settings.train.publish_every,
        check=partial(ShardCheck(settings, place.model, place.initial_hash), run_id=run.run_id),
        stopping=place.stopping,
        ranks=place.ranks,
    )
