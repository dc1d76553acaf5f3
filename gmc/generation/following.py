"""What a follower does with a model: it loads published policies into it and writes batches of rollouts."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gmc.config.settings import RunSettings
from gmc.engines.noise import measure_noise
from gmc.errors import DataError, GmcError
from gmc.generation.in_flight import Swaps, make_in_flight
from gmc.live.follow import BatchCounts, Follower, Work, require_own
from gmc.live.heartbeats import new_name
from gmc.models import load_model, tokenizer_hash
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.checks import check_in_flight
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.resampling import Made
from gmc.store.files import is_ready
from gmc.store.policies import list_policies, read_policy_info
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.groups import sampled_length
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.writer import write_shard

log = logging.getLogger(__name__)


def follow_run(
    run: RunDirectory,
    settings: RunSettings,
    *,
    progress: Callable[[str], None] = lambda state: None,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Follow a live run until it ends or `stopping` says so; returns counts.

    settings: those of the run's trainer, with this follower's own engine. progress: called with every state, in words.
    """
    if settings.live.in_flight:
        check_in_flight(settings, "live.in_flight")
    name = new_name()
    started = time.monotonic()
    with ExitStack() as resources:
        model = build_model(settings)
        engine = build_engine(settings, model, run.engine_log(name))
        resources.callback(engine.close)
        maker = build_maker(run.run_id, settings, model, build_scorer(settings, model), engine)
        resources.callback(maker.reward.close)
        work = _PolicyWork(maker, run.policies)
        follower = Follower(
            run,
            Work(work.load_policy, work.make_batch),
            max_ahead=settings.live.max_ahead,
            lease_seconds=settings.live.lease_seconds,
            name=name,
        )
        batches = follower.follow(stopping=stopping, progress=progress)
    current = follower.heartbeat.current
    return {
        "follower": name,
        "batches": batches,
        "responses": current.responses,
        "tokens": current.tokens,
        "version": current.version,
        "busy_seconds": current.busy_seconds,
        "seconds": time.monotonic() - started,
    }


class _PolicyWork:
    """Loads policies into the maker's model and makes batches with it."""

    def __init__(self, maker: RolloutMaker, policies: Path) -> None:
        self._maker, self._policies = maker, policies
        self._metadata: ShardMetadata | None = None
        self._noise_reported = False

    def load_policy(self, folder: Path) -> None:
        """Put the published weights in place. Raises `DataError` when they are not those that the policy's record names."""
        info = read_policy_info(folder)
        self._require_tokenizer(folder, info.tokenizer_hash)
        published = load_model(folder).weights()
        with torch.no_grad():
            for name, parameter in self._maker.model.weights().items():
                parameter.copy_(published[name])
        self._metadata = self._maker.metadata(info.version, published=True)
        if self._metadata.weights_hash != info.weights_hash:
            raise DataError(
                f"{folder}: its weights have hash {self._metadata.weights_hash[:12]}, its record says "
                f"{info.weights_hash[:12]}; the trainer publishes it again on --resume."
            )

    def _require_tokenizer(self, folder: Path, wanted: str) -> None:
        """Raise `GmcError` for a run of another tokenizer: token ids are what the trainer learns from."""
        model = self._maker.model
        found = tokenizer_hash(model.tokenizer)
        if wanted and found != wanted:
            raise GmcError(
                f"{folder}: the trainer's tokenizer has hash {wanted[:12]}, that of {model.source} here {found[:12]}; give "
                "both the same revision of the model, for example one folder"
            )

    def make_batch(self, batch: int, version: int, path: Path) -> BatchCounts:
        """Make launch batch `batch` and write its shard, with the wall-clock seconds between which it was made."""
        assert self._metadata is not None
        launched_at, metadata = time.time(), self._metadata
        if self._maker.settings.live.in_flight:
            rows, last = self._make_in_flight(batch, version)
            made = Made(rows)
            if last != version:  # several policies made it
                metadata = replace(metadata, weights_hash="")
        else:
            made, last = self._maker.make(batch, version), version
        rows, ready_at = made.rows, time.time()
        for row in rows:
            row.launched_at, row.ready_at = launched_at, ready_at
        logged = dict(self._maker.reward.metrics())
        write_shard(path, rows, replace(metadata, set_aside=made.set_aside, reward_log=logged))
        if not self._noise_reported:
            self._noise_reported = True
            if noise := measure_noise(rows):
                noise.log_to(log)
        size = self._maker.settings.rollout.group_size
        return BatchCounts(
            len(rows) + size * len(made.set_aside),
            sum(sampled_length(row) for row in rows) + sum(group.tokens for group in made.set_aside),
            last,
        )

    def _make_in_flight(self, batch: int, version: int) -> tuple[list[Rollout], int]:
        held = version

        def newer() -> bool:
            policies = list_policies(self._policies)
            return bool(policies) and policies[-1][0] > held

        def load() -> int:
            nonlocal held
            found, folder = list_policies(self._policies)[-1]
            try:
                require_own(folder, self._maker.run_id)
                self.load_policy(folder)
            except (DataError, OSError):
                if is_ready(folder):
                    raise
                return held  # cleaned away meanwhile: newer ones are there, and come at the next look
            held = found
            return held

        keep = self._maker.settings.live.in_flight_cache == "kept"
        return make_in_flight(self._maker, batch, version, Swaps(newer, load, keep))
