"""Filling a run with rollouts of its initial policy: what `gmc rollout` does."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from gmc.config.settings import RunSettings
from gmc.engines.noise import measure_noise
from gmc.errors import UsageError
from gmc.models import policy_hash
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.checks import check_sampling
from gmc.resolving.out_of_memory import explained_out_of_memory
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.shard_fit import check_shards
from gmc.store.refused import nothing_left_when_refused
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.groups import sampled_length
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.writer import write_shard

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RolloutSummary:
    """What a run holds after `generate_batches`. batches: asked for, of which `made` are new; mean_reward: of all responses;
    accuracy, cut_off: shares of all responses, accuracy None for a reward that may be any number; mean_length: tokens;
    set_aside: groups with equal rewards in whose place further prompts were asked; problems: in the data set; weights: hash of
    the policy that made them."""

    run: Path
    batches: int
    responses: int
    made: int
    cut_off: float
    accuracy: float | None
    mean_reward: float
    mean_length: float
    set_aside: int
    problems: int
    weights: str

    def record(self) -> dict[str, object]:
        """As the one JSON object of `gmc rollout --json`."""
        return {**vars(self), "run": str(self.run)}


def fill_run(
    path: Path,
    settings: RunSettings,
    *,
    resume: bool = False,
    overwrite: bool = False,
    advance: Callable[[int], None] = lambda count: None,
) -> RolloutSummary:
    """Make the run directory `path`, or go on with it, and write its rollouts by the initial policy.

    resume: go on with a run that has rollouts; overwrite: delete it first; advance: called with the number of newly finished
    responses, those already on disk included. Raises `GmcError` in one line; whole batches are on the disk then.
    """
    check_sampling(settings)
    with nothing_left_when_refused(path), explained_out_of_memory(settings, lambda: "rollouts"):
        run = RunDirectory.for_training(
            path, model=settings.model.source, seed=settings.seed, resume=resume, overwrite=overwrite
        )
        with run.lock():
            return generate_batches(run, settings, advance=advance)


def generate_batches(run: RunDirectory, settings: RunSettings, *, advance: Callable[[int], None]) -> RolloutSummary:
    """Write the launch batches 0 … `rollout.batches`−1 that the run does not hold yet, all by policy version 0, and save the
    settings, if those of the batches that are there were the same.

    The caller holds the run's lock. advance: called with the number of newly finished responses, those already on disk
    included. Raises `UsageError` for a run that has trained: its rollouts come from `gmc train`.
    """
    if run.has_trained:
        raise UsageError(f"{run.path}: this run has trained; its trainer makes its rollouts. Use another --run.")
    model = build_model(settings)
    run.bind_weights(policy_hash(model))
    store = RolloutStore(run.rollouts, run.run_id)
    store.clean()
    check_shards(store, settings, model, run.record.weights_hash)
    run.save_settings("rollout", settings)
    with closing(build_engine(settings, model, run.engine_log("rollout"))) as engine:
        maker = build_maker(run.run_id, settings, model, build_scorer(settings, model), engine)
        with closing(maker):
            for note in maker.problem_set.notes:
                log.info(note)
            made, rows, set_aside = _fill(store, maker, settings.rollout.batches, advance)
    count = len(rows)
    mean_reward = sum(row.reward for row in rows) / count
    return RolloutSummary(
        run=run.path,
        batches=settings.rollout.batches,
        responses=count,
        made=made,
        cut_off=sum(row.cut_off for row in rows) / count,
        accuracy=mean_reward if maker.reward.is_binary and maker.environment.keeps_rewards else None,
        mean_reward=mean_reward,
        mean_length=sum(row.length for row in rows) / count,
        set_aside=set_aside,
        problems=len(maker.problem_set),
        weights=run.record.weights_hash,
    )


class _Row(NamedTuple):
    reward: float
    length: int
    cut_off: bool


def _fill(
    store: RolloutStore, maker: RolloutMaker, batches: int, advance: Callable[[int], None]
) -> tuple[int, list[_Row], int]:
    """How many batches were made, what is counted of every row, and how many groups were set aside."""
    metadata = maker.metadata(0)
    on_disk = {stored.batch: stored for stored in store.list()}
    counted: list[_Row] = []
    set_aside = 0
    for batch in range(batches):
        if batch in on_disk:
            shard = store.read(on_disk[batch], tokenizer_hash=metadata.tokenizer_hash)
            rows, aside = shard.rollouts, shard.metadata.set_aside
            advance(len(rows))
        else:
            made = maker.make(batch, 0, advance)
            rows, aside = made.rows, made.set_aside
            write_shard(store.path_for(batch, 0), rows, replace(metadata, set_aside=aside))
        set_aside += len(aside)
        if batch == 0 and (noise := measure_noise(rows)):
            noise.log_to(log)
        counted += [_Row(row.reward, sampled_length(row), row.finish_reason == "length") for row in rows]
    return sum(batch not in on_disk for batch in range(batches)), counted, set_aside
