"""Opening a training session: a fresh one on a run that holds at most rollouts, or one that goes on from a checkpoint."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gmc.config.settings import Settings
from gmc.delays.spec import delay_spec_kind, parse_delay
from gmc.errors import DataError, UsageError
from gmc.estimators.registry import build_estimator
from gmc.gradients.rule_calls import RuleCalls
from gmc.live.cleanup import clean_policies
from gmc.live.ending import unmark_ended
from gmc.live.followers import TRAINER, Pulse
from gmc.models import LanguageModel, tokenizer_hash, weights_hash
from gmc.ranks import ALONE, Ranks
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.needs import with_needs
from gmc.rollouts.live import LiveQueue
from gmc.rollouts.scheduled import RolloutQueue
from gmc.rollouts.shard_fit import ShardCheck, check_shards, planned_updates, shard_contents
from gmc.store.checkpoints import Checkpoint, load_newest, prune_checkpoints
from gmc.store.logs import cut_log, read_used
from gmc.store.policies import set_aside_policies
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.imports import Imports
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.training.anchors import Anchors
from gmc.training.optimizer import make_optimizer
from gmc.training.optimizer_state import load_optimizer_tensors
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
    ranks: Ranks = ALONE,
) -> Session:
    """Everything the loop needs, at the newest checkpoint if the run has one.

    On resume the logs are cut back to the checkpoint, and rollouts of later versions are set aside: they belong to a future
    that did not happen, and come again. rollouts_from: a folder of version-0 rollouts of the same model to bring in. What must
    be closed goes into `resources`. stopping: whether this process was asked to stop. ranks: the processes that train
    together; all open their session, the lead alone changes the directory. Raises `GmcError` naming what does not fit.
    """
    rest = {key: value for key, value in settings.estimator.items() if key != "name"}
    estimator = build_estimator(settings.estimator["name"], rest)
    settings = with_needs(settings, estimator)
    model = build_model(settings, ranks)
    store = RolloutStore(run.rollouts, run.run_id)
    initial_hash = ranks.from_lead(lambda: _bind(run, store, model))
    imports = None if rollouts_from is None else _imports(store, rollouts_from, settings, model, initial_hash)
    if imports and (settings.is_live or delay_spec_kind(settings.delay) == "shards"):
        ranks.from_lead(lambda: [imports.bring(batch) for batch in imports.batches])

    checkpoint = load_newest(run.checkpoints, run_id=run.run_id)
    version = checkpoint.update if checkpoint else 0
    if settings.train.updates < version:
        raise UsageError(
            f"{run.path}: {version} updates are done, more than --updates {settings.train.updates}; give {version} or more"
        )
    check_shards(store, settings, model, initial_hash)

    scorer = build_scorer(settings, model, ranks)
    optimizer = make_optimizer([p for p in model.network.parameters() if p.requires_grad], settings.optimizer)
    anchors = Anchors(model.network, estimator.anchor_lag)
    if checkpoint:
        _restore(checkpoint, model, optimizer)
        RuleCalls(estimator, version).load_state_dict(unprefixed(RULE, checkpoint.estimator))
        anchors.load_state_dict(unprefixed(ANCHORS, checkpoint.estimator))

    ranks.from_lead(
        lambda: _rewind(run, store, version, settings.train.keep_checkpoints, say)
    )  # only now, when everything in the checkpoint fits
    planned = planned_updates(settings, store)
    tree = settings.model_dump(mode="json")
    trackers = make_trackers(settings.train.trackers, run.run_id, run.path / "tensorboard", tree) if ranks.leads else []
    updater = Updater(model, scorer, estimator, optimizer, anchors, settings, planned, ranks)
    saved = version if checkpoint else None
    if settings.is_live:
        live_queue = _live_queue(settings, store, resources, say, stopping, run, checkpoint, model, initial_hash, ranks)
        session = Session(run, updater, live_queue, version, saved, trackers, say)
        session.after_publish = lambda: _clean_policies(session, live_queue)
        session.publish()  # followers have something to load, and a resumed trainer's weights are theirs again
        return session
    maker = None
    if delay_spec_kind(settings.delay) != "shards":
        _require_own_engine(settings, ranks)
        engine = build_engine(settings, model, run.engine_log("train"))
        resources.callback(engine.close)
        maker = build_maker(run.run_id, settings, model, scorer, engine, ranks)
        resources.callback(maker.grader.close)
        for note in maker.problem_set.notes:
            say(note)
    bring = imports.bring if imports else _nothing_to_bring
    queue = _queue(settings, store, planned, maker, stopping, run, checkpoint, ranks, bring)
    session = Session(run, updater, queue, version, saved, trackers, say)
    session.publish_again()
    return session


def _bind(run: RunDirectory, store: RolloutStore, model: LanguageModel) -> str:
    run.bind_weights(weights_hash(model.weights()))
    store.clean()
    return run.record.weights_hash


def _imports(store: RolloutStore, source: Path, settings: Settings, model: LanguageModel, initial_hash: str) -> Imports:
    return Imports(
        store,
        source,
        weights_hash=initial_hash,
        tokenizer_hash=tokenizer_hash(model.tokenizer),
        check=partial(ShardCheck(settings, model, initial_hash), run_id=None),
    )


def _require_own_engine(settings: Settings, ranks: Ranks) -> None:
    """vLLM starts its own processes, which torchrun's environment confuses."""
    if ranks.count > 1 and settings.rollout.engine == "vllm":
        raise UsageError(
            f"rollout.engine = vllm with {ranks.count} ranks: let gmc rollout --follow --engine vllm sample in processes of "
            "their own and train with --live, or sample with --engine transformers"
        )


def _rewind(run: RunDirectory, store: RolloutStore, version: int, keep_checkpoints: int, say: Say) -> None:
    prune_checkpoints(run.checkpoints, keep_checkpoints)
    for log in (run.used, run.metrics):
        cut = cut_log(log, version)
        if cut.dropped or cut.torn:
            say(str(cut))
    if moved := store.set_aside(version):
        say(f"set aside {len(moved)} rollout batches of versions after {version}, which will be generated again")
    if moved := set_aside_policies(run.policies, version):
        say(f"set aside {len(moved)} published policies of versions after {version}")


def _restore(checkpoint: Checkpoint, model: LanguageModel, optimizer: torch.optim.Optimizer) -> None:
    weights = model.weights()
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.weights.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
        raise DataError(f"{checkpoint.path}: its weights are not those of {model.source}; restore the folder from a copy")
    with torch.no_grad():
        for name, parameter in weights.items():
            parameter.copy_(checkpoint.weights[name])
    load_optimizer_tensors(optimizer, checkpoint.optimizer)


def _queue(
    settings: Settings,
    store: RolloutStore,
    planned: int,
    maker: Any,
    stopping: Callable[[], bool],
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    ranks: Ranks,
    bring: Callable[[int], StoredShard | None],
) -> RolloutQueue:
    delays = parse_delay(
        settings.delay,
        prompts=settings.rollout.prompts,
        group_size=settings.rollout.group_size,
        seed=settings.seed,
        updates=planned,
        shards=shard_contents(store) if delay_spec_kind(settings.delay) in ("shards", "schedule") else (),
        calibrated_clock=checkpoint.extra.get("calibrated_clock") if checkpoint else None,
    )
    queue = RolloutQueue(
        store, delays, maker, spec=settings.delay, stopping=lambda: ranks.any(stopping()), ranks=ranks, bring=bring
    )
    if checkpoint:
        queue.replay(read_used(run.used), int(checkpoint.extra.get("planned_updates", planned)))
    return queue


def _nothing_to_bring(batch: int) -> StoredShard | None:
    return None


def _live_queue(
    settings: Settings,
    store: RolloutStore,
    resources: ExitStack,
    say: Say,
    stopping: Callable[[], bool],
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    model: LanguageModel,
    initial_hash: str,
    ranks: Ranks,
) -> LiveQueue:
    live = settings.live
    pulse = Pulse(run.followers, TRAINER, live.lease_seconds) if ranks.leads else None
    if pulse is not None:
        unmark_ended(run)
        resources.enter_context(pulse.beating())
    queue = LiveQueue(
        run,
        store,
        pulse,
        prompts=settings.rollout.prompts,
        patience_seconds=live.patience_seconds,
        check=partial(ShardCheck(settings, model, initial_hash), run_id=run.run_id),
        say=say,
        stopping=stopping,
        ranks=ranks,
    )
    if checkpoint:
        queue.replay(read_used(run.used))
    return queue


def _clean_policies(session: Session, queue: LiveQueue) -> None:
    queue.tell(f"published version {session.version}", version=session.version)
    clean_policies(session.run, queue.watcher, session.updater.settings.train.publish_every)
