"""What a follower does with a model: it loads published policies into it and writes batches of rollouts."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.engines.noise import measure_noise
from gmc.errors import DataError, GmcError
from gmc.generation.batches import FollowedBatch, InFlightBatch, StagedBatch, WholeBatch
from gmc.generation.in_flight import Swaps
from gmc.generation.published_weights import PublishedWeights
from gmc.live.follow import Follower, Progress, Work, require_own
from gmc.live.heartbeats import new_name
from gmc.live.receiving import Receiving
from gmc.live.weight_line import step_seconds
from gmc.models import LanguageModel, tokenizer_hash
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.checks import check_in_flight, check_sampling, sends_to_followers
from gmc.resolving.out_of_memory import explained_out_of_memory
from gmc.rollouts.maker import RolloutMaker
from gmc.store.files import is_ready
from gmc.store.policies import PolicyInfo, list_policies, read_policy_info
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.rollout import Rollout, ShardMetadata

log = logging.getLogger(__name__)


def follow_run(
    run: RunDirectory,
    settings: RunSettings,
    *,
    progress: Progress = lambda heartbeat: None,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Follow a live run until it ends or `stopping` says so; returns counts.

    settings: those of the run's trainer, with this follower's own engine. progress: as `Follower.follow` calls it.
    """
    check_sampling(settings)
    sends = sends_to_followers(settings)
    if settings.live.in_flight:
        check_in_flight(settings, "live.in_flight")
    name = new_name()
    started = time.monotonic()
    with explained_out_of_memory(settings, lambda: f"follower {name}"), ExitStack() as resources:
        model = build_model(settings)
        engine = build_engine(settings, model, run.engine_log(name))
        resources.callback(engine.close)
        maker = build_maker(run.run_id, settings, model, build_scorer(settings, model), engine)
        resources.callback(maker.close)
        work = PolicyWork(maker, run.policies, _receiving(run, name, model, resources) if sends else None)
        follower = Follower(
            run,
            Work(work.load_policy, work.begin, work.at_once),
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


def _receiving(run: RunDirectory, name: str, model: LanguageModel, resources: ExitStack) -> Receiving | None:
    """The way to policies over NCCL; an adapter is small, and comes by the folder."""
    if model.adapter is not None:
        return None
    tensors = model.weights()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    receiving = Receiving(run, name, tensors, seconds=step_seconds(size))
    resources.callback(receiving.close)
    return receiving


class PolicyWork:
    """Loads policies into the maker's model and begins batches with it. receiving: another way to them than the folder."""

    def __init__(self, maker: RolloutMaker, policies: Path, receiving: Receiving | None = None) -> None:
        self._maker, self._policies, self._receiving = maker, policies, receiving
        self._weights = PublishedWeights(maker.model)
        self._metadata: ShardMetadata | None = None
        self._last: FollowedBatch | None = None
        self._noise_reported = False

    @property
    def at_once(self) -> int:
        """How many batches the engine samples at once."""
        return 1 if self._whole or self._maker.settings.live.in_flight else self._maker.engine.at_once

    @property
    def _whole(self) -> bool:
        return self._maker.settings.rollout.resample_equal > 0 or self._maker.environment.replies

    def load_policy(self, folder: Path) -> None:
        """Put the published weights in place. Raises `DataError` when they are not those that the policy's record names."""
        info = read_policy_info(folder)
        self._require_tokenizer(folder, info.tokenizer_hash)
        sent = None if self._receiving is None else partial(self._receiving.take, info.version)
        proved = self._taken(folder, info, sent)
        if not proved and sent is not None:
            log.warning("%s: other weights came over NCCL than its record names; it is read from the folder", folder)
            proved = self._taken(folder, info, None)
        if not proved:
            assert self._metadata is not None
            raise DataError(
                f"{folder}: its weights have hash {self._metadata.weights_hash[:12]}, its record says "
                f"{info.weights_hash[:12]}; the trainer publishes it again on --resume."
            )

    def _taken(self, folder: Path, info: PolicyInfo, sent: Callable[[], bool] | None) -> bool:
        """Take a policy; whether the weights are then those that its record names."""
        self._weights.take(folder, info.files, ready=self._scored, sent=sent)
        self._metadata = self._maker.metadata(info.version, published=True)
        proved = self._metadata.weights_hash == info.weights_hash
        if not proved:
            self._weights.forget()
        return proved

    def _scored(self) -> None:
        """Wait for the batch whose log-probs are still being taken from the weights of now."""
        if self._last is not None:
            self._last.scored.wait()

    def _require_tokenizer(self, folder: Path, wanted: str) -> None:
        """Raise `GmcError` for a run of another tokenizer: token ids are what the trainer learns from."""
        model = self._maker.model
        found = tokenizer_hash(model.tokenizer)
        if wanted and found != wanted:
            raise GmcError(
                f"{folder}: the trainer's tokenizer has hash {wanted[:12]}, that of {model.source} here {found[:12]}; give "
                "both the same revision of the model, for example one folder"
            )

    def begin(self, batch: int, version: int) -> FollowedBatch:
        """Launch batch `batch` with the policy that was loaded last."""
        assert self._metadata is not None
        given = (self._maker, batch, version, self._metadata, self._report_noise)
        if self._maker.settings.live.in_flight:
            return InFlightBatch(*given, self._swaps(version))
        self._last = WholeBatch(*given) if self._whole else StagedBatch(*given)
        return self._last

    def _report_noise(self, rows: list[Rollout]) -> None:
        if not self._noise_reported:
            self._noise_reported = True
            if noise := measure_noise(rows):
                noise.log_to(log)

    def _swaps(self, version: int) -> Swaps:
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

        return Swaps(newer, load, self._maker.settings.live.in_flight_cache == "kept")
