"""Opening a training session: a fresh one on a run that holds at most rollouts, or one that goes on from a checkpoint."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from gmc.build import build_engine, build_maker, build_model, build_scorer
from gmc.config.settings import Settings
from gmc.delays.shards import ShardContents
from gmc.delays.spec import delay_spec_kind, parse_delay
from gmc.errors import DataError, UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.live.cleanup import clean_policies
from gmc.live.ending import unmark_ended
from gmc.live.followers import TRAINER, Pulse
from gmc.live.queue import LiveQueue
from gmc.models import LanguageModel, tokenizer_hash, weights_hash
from gmc.policies import set_aside_policies
from gmc.run import RunDirectory
from gmc.run_logs import cut_log, read_used
from gmc.shards.reader import read_lengths, read_metadata
from gmc.shards.store import RolloutStore, StoredShard
from gmc.training.anchors import Anchors
from gmc.training.checkpoint import Checkpoint, load_newest
from gmc.training.optimizer import make_optimizer
from gmc.training.optimizer_state import load_optimizer_tensors
from gmc.training.queue import RolloutQueue
from gmc.training.session import ANCHORS, RULE, Session, unprefixed
from gmc.training.trackers import make_trackers
from gmc.training.update import Updater

Say = Callable[[str], None]


def open_session(
    run: RunDirectory,
    settings: Settings,
    resources: ExitStack,
    *,
    rollouts_from: Path | None = None,
    say: Say,
    stopping: Callable[[], bool] = lambda: False,
) -> Session:
    """Everything the loop needs, at the newest checkpoint if the run has one.

    On resume the logs are cut back to the checkpoint, and rollouts of later versions are set aside: they belong to a future
    that did not happen, and come again. rollouts_from: a folder of version-0 rollouts of the same model to bring in. What must
    be closed goes into `resources`. Raises `GmcError` naming what does not fit together.
    """
    rest = {key: value for key, value in settings.estimator.items() if key != "name"}
    estimator = build_estimator(settings.estimator["name"], rest)
    settings = with_needs(settings, estimator)
    model = build_model(settings)
    run.bind_weights(weights_hash(model.weights()))
    store = RolloutStore(run.rollouts, run.run_id)
    store.clean()
    if rollouts_from is not None:
        imported = store.import_from(
            rollouts_from, weights_hash=run.record.weights_hash, tokenizer_hash=tokenizer_hash(model.tokenizer)
        )
        say(f"brought in {len(imported)} rollout batches from {rollouts_from}")

    checkpoint = load_newest(run.checkpoints, run_id=run.run_id)
    version = checkpoint.update if checkpoint else 0
    if settings.train.updates < version:
        raise UsageError(
            f"{run.path}: {version} updates are done, more than --updates {settings.train.updates}; give {version} or more"
        )
    _check_shards(store, settings, model)

    scorer = build_scorer(settings, model)
    optimizer = make_optimizer([p for p in model.network.parameters() if p.requires_grad], settings.optimizer)
    anchors = Anchors(model.network, estimator.anchor_lag)
    if checkpoint:
        _restore(checkpoint, model, optimizer)
        estimator.load_state_dict(unprefixed(RULE, checkpoint.estimator))
        anchors.load_state_dict(unprefixed(ANCHORS, checkpoint.estimator))

    _rewind(run, store, version, say)  # only now, when everything in the checkpoint fits
    planned = _planned_updates(settings, store)
    tree = settings.model_dump(mode="json")
    trackers = make_trackers(settings.train.trackers, run.run_id, run.path / "tensorboard", tree)
    updater = Updater(model, scorer, estimator, optimizer, anchors, settings, planned)
    saved = version if checkpoint else None
    if settings.is_live:
        live_queue = _live_queue(settings, store, resources, say, stopping, run, checkpoint, model)
        session = Session(run, updater, live_queue, version, saved, trackers, say)
        session.after_publish = lambda: _clean_policies(session, live_queue)
        session.publish()  # followers have something to load, and a resumed trainer's weights are theirs again
        return session
    maker = None
    if delay_spec_kind(settings.delay) != "shards":
        engine = build_engine(settings, model, run.engine_log("train"))
        resources.callback(engine.close)
        maker = build_maker(run.run_id, settings, model, scorer, engine)
        resources.callback(maker.grader.close)
        for note in maker.problem_set.notes:
            say(note)
    queue = _queue(settings, store, planned, maker, stopping, run, checkpoint)
    session = Session(run, updater, queue, version, saved, trackers, say)
    session.publish_again()
    return session


def with_needs(settings: Settings, estimator: Estimator) -> Settings:
    """The settings with behavior entropies switched on when the rule asks for them."""
    if Need.BEHAVIOR_ENTROPY not in estimator.needs or settings.rollout.entropies:
        return settings
    return settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"entropies": True})})


def _rewind(run: RunDirectory, store: RolloutStore, version: int, say: Say) -> None:
    for log in (run.used, run.metrics):
        cut = cut_log(log, version)
        if cut.dropped or cut.torn:
            say(str(cut))
    if moved := store.set_aside(version):
        say(f"set aside {len(moved)} rollout batches of versions after {version}, which will be generated again")
    if moved := set_aside_policies(run.policies, version):
        say(f"set aside {len(moved)} published policies of versions after {version}")


def _check_shards(store: RolloutStore, settings: Settings, model: LanguageModel) -> None:
    vocabulary = tokenizer_hash(model.tokenizer)
    for stored in store.list():
        _check_shard(stored, store.run_id, settings, vocabulary)


def _check_shard(stored: StoredShard, run_id: str, settings: Settings, vocabulary: str) -> None:
    """Refuse a shard that was sampled in another way than these settings say; vocabulary: the tokenizer's hash."""
    rollout = settings.rollout
    metadata = read_metadata(stored.path)
    for what, found, wanted in (
        ("run id", metadata.run_id, run_id),
        ("tokenizer hash", metadata.tokenizer_hash, vocabulary),
        ("rollout.group_size", metadata.group_size, rollout.group_size),
        ("rollout.temperature", metadata.sampling.get("temperature"), str(rollout.temperature)),
        ("rollout.max_tokens", metadata.sampling.get("max_tokens"), str(rollout.max_tokens)),
    ):
        if found is not None and found != wanted:  # a shard of another tool need not name its sampling
            raise UsageError(
                f"{stored.path}: its {what} is {found}, this command's is {wanted}; give the setting that they were "
                "made with, or use another --run"
            )


def _restore(checkpoint: Checkpoint, model: LanguageModel, optimizer: torch.optim.Optimizer) -> None:
    weights = model.weights()
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.weights.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
        raise DataError(f"{checkpoint.path}: its weights are not those of {model.source}; restore the folder from a copy")
    with torch.no_grad():
        for name, parameter in weights.items():
            parameter.copy_(checkpoint.weights[name])
    load_optimizer_tensors(optimizer, checkpoint.optimizer)


def _planned_updates(settings: Settings, store: RolloutStore) -> int:
    """The horizon N: as set; with `--delay shards` at most as many updates as the shards on disk serve."""
    if settings.delay != "shards":
        return settings.train.updates
    available = sum(shard.groups for shard in _contents(store)) // settings.rollout.prompts
    if not available:
        raise UsageError(f"{store.directory}: no rollouts for --delay shards; run gmc rollout first")
    return min(settings.train.updates, available)


def _contents(store: RolloutStore) -> list[ShardContents]:
    return [ShardContents(stored.batch, stored.version, len(read_lengths(stored.path))) for stored in store.list()]


def _queue(
    settings: Settings,
    store: RolloutStore,
    planned: int,
    maker: Any,
    stopping: Callable[[], bool],
    run: RunDirectory,
    checkpoint: Checkpoint | None,
) -> RolloutQueue:
    delays = parse_delay(
        settings.delay,
        prompts=settings.rollout.prompts,
        group_size=settings.rollout.group_size,
        seed=settings.seed,
        updates=planned,
        shards=_contents(store) if delay_spec_kind(settings.delay) in ("shards", "schedule") else (),
        calibrated_clock=checkpoint.extra.get("calibrated_clock") if checkpoint else None,
    )
    queue = RolloutQueue(store, delays, maker, spec=settings.delay, stopping=stopping)
    if checkpoint:
        queue.replay(read_used(run.used), int(checkpoint.extra.get("planned_updates", planned)))
    return queue


def _live_queue(
    settings: Settings,
    store: RolloutStore,
    resources: ExitStack,
    say: Say,
    stopping: Callable[[], bool],
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    model: LanguageModel,
) -> LiveQueue:
    live, vocabulary = settings.live, tokenizer_hash(model.tokenizer)
    unmark_ended(run)
    pulse = resources.enter_context(Pulse(run.followers, TRAINER, live.lease_seconds).beating())
    queue = LiveQueue(
        run,
        store,
        pulse,
        prompts=settings.rollout.prompts,
        patience_seconds=live.patience_seconds,
        check=lambda stored: _check_shard(stored, run.run_id, settings, vocabulary),
        say=say,
        stopping=stopping,
    )
    if checkpoint:
        queue.replay(read_used(run.used))
    return queue


def _clean_policies(session: Session, queue: LiveQueue) -> None:
    queue.pulse.say(f"published version {session.version}", version=session.version)
    clean_policies(session.run, queue.watcher, session.updater.settings.train.publish_every)
