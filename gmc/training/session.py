"""A training run in memory: the model and its rule on one side, the run directory on the other."""

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from gmc.delays.base import GroupRef
from gmc.engines.noise import measure_noise
from gmc.errors import GmcError
from gmc.models import LanguageModel, private_copy, random_ids
from gmc.rollouts.source import RolloutSource
from gmc.store.best import HELDOUT, Scored, best_of
from gmc.store.checkpoints import copied_out, save_checkpoint
from gmc.store.files import append_jsonl
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.groups import Groups, sampled_length
from gmc.training.background import BackgroundWriter
from gmc.training.saved_state import flush_logs, training_state
from gmc.training.trackers import Tracker, chosen_samples
from gmc.training.update import CURE, NonFiniteError, Updater

if TYPE_CHECKING:
    from gmc.training.heldout import HeldOut

log = logging.getLogger(__name__)

PROBE_TOKENS = 9
LARGEST_WEIGHT = 1e18
"""The square of a larger one overflows in 32 bits."""


@dataclass
class Session:
    """Holds what the loop needs. `version` is the current policy version, which is the index of the next update.

    saved: the version of the newest checkpoint, None before the first. publish_every: updates between published policies;
    samples_every: between tables of samples for the trackers, the first update's included.
    heldout: what is scored along the way, None for nothing and on a rank other than 0; best: the best score so far.
    writer: writes checkpoints and policies while training goes on.
    """

    run: RunDirectory
    updater: Updater
    source: RolloutSource
    version: int
    saved: int | None
    publish_every: int
    trackers: list[Tracker] = field(default_factory=list)
    samples_every: int = 50
    heldout: "HeldOut | None" = None
    best: Scored | None = None
    writer: BackgroundWriter = field(default_factory=BackgroundWriter)
    _noise_reported: bool = False
    _recorded_at: float = field(default_factory=time.perf_counter)

    @property
    def planned_updates(self) -> int:
        """The horizon N."""
        return self.updater.planned_updates

    def score_when_due(self, version: int, progress: Callable[[int], None]) -> dict[str, float]:
        """The current weights' metrics on held-out problems, at the interval of the settings and at the end; else nothing."""
        every = self.updater.settings.train.eval_every
        if not every or (version % every and version != self.planned_updates):
            return {}
        started = time.perf_counter()
        heldout = self.heldout
        metrics = self.updater.parameters.ranks.from_rank_0(lambda: heldout.score(version, progress) if heldout else {})
        self.best = best_of([*([self.best] if self.best else []), Scored(version, metrics[HELDOUT])])
        self._recorded_at += time.perf_counter() - started  # an update took no longer for it
        return metrics

    def record(self, update: int, groups: Groups, metrics: dict[str, float]) -> None:
        """Log one finished update: the groups it used and its metrics, to which the time since the last one is added."""
        self.version = update + 1
        now = time.perf_counter()
        tokens = sum(sampled_length(row) for group in groups for row in group)
        metrics["time/seconds"] = now - self._recorded_at
        metrics["time/tokens_per_second"] = tokens / metrics["time/seconds"]
        self._recorded_at = now
        self._add_noise(groups, metrics)
        metrics |= self.source.metrics()
        if not self.updater.parameters.ranks.is_rank_0:
            return
        self.writer.look()
        references = [GroupRef(group[0].batch, group[0].group) for group in groups]
        append_jsonl(self.run.used, {"update": update, "groups": [list(reference) for reference in references]})
        append_jsonl(self.run.metrics, {"update": update, **metrics})
        for tracker in self.trackers:
            tracker.log(update, metrics)
            if update % self.samples_every == 0:
                tracker.log_samples(update, chosen_samples(groups, update if self.updater.knows_lags else None))

    def _add_noise(self, groups: Groups, metrics: dict[str, float]) -> None:
        """How far the engine's log-probs lie from the trainer's for rounding alone: a metric always, logged once a start."""
        noise = measure_noise(row for group in groups for row in group)
        if noise is None:
            return
        metrics["noise/token_spread"] = noise.spread
        metrics["noise/response_spread"] = noise.response_spread
        if not self._noise_reported:
            self._noise_reported = True
            noise.log_to(log)

    def publish_again(self) -> None:
        """After a resume: publish what a kill between checkpoint and publication may have left out."""
        if self.saved and self._is_published(self.version):
            self.publish()

    def _is_published(self, version: int) -> bool:
        return version % self.publish_every == 0 or (self.best is not None and self.best.version == version)

    def save_when_due(self) -> None:
        """Checkpoint, and publish the policy, at the intervals of the settings; publish the best so far in any case."""
        if self._is_published(self.version):
            self.publish()
        elif self.version % self.updater.settings.train.checkpoint_every == 0:
            self.save()

    def save(self) -> None:
        """Begin to make the state after `version` updates durable, once: first the logs, last the checkpoint's marker."""
        if self.saved != self.version:
            self._keep(publish=False)

    def publish(self, *, wait: bool = False) -> None:
        """Begin to publish the current policy. Only weights that a durable checkpoint can restore ever leave the trainer."""
        self._keep(publish=True)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return when all that was begun is durable."""
        parameters = self.updater.parameters
        if parameters.lockstep:
            self.writer.wait()
            parameters.ranks.collect(None)
        else:
            parameters.ranks.from_rank_0(self.writer.wait)

    def _keep(self, *, publish: bool) -> None:
        if self.saved != self.version:
            self.source.settle()
            self._require_equal_weights()
            self._require_finite_forward()
        parameters = self.updater.parameters
        if parameters.lockstep:
            self._begin(publish=publish)
        else:
            parameters.ranks.from_rank_0(lambda: self._begin(publish=publish))
        self.saved = self.version

    def _begin(self, *, publish: bool) -> None:
        """Copy what is to be written, and write it while training goes on: on rank 0, or on all where each holds a part."""
        self.writer.wait()  # before anything is copied, so that there is one copy at most
        steps = [self._checkpoint()] if self.saved != self.version else []
        if not publish:
            self.writer.start(steps[0])
            return
        steps.append(self._policy())
        version, best = self.version, self.best

        def write() -> None:
            for step in steps:
                step()

        def then() -> None:
            if self.updater.parameters.ranks.is_rank_0:
                self.source.published(version, keep=best.version if best else None)

        self.writer.start(write, then=then)

    def _require_equal_weights(self) -> None:
        if not self.updater.parameters.agree():
            raise GmcError(
                f"update {self.version}: the ranks hold different weights, so no checkpoint was written; go on from the last "
                "one with --resume, and suspect a faulty GPU or mixed kinds of GPUs"
            )

    def _require_finite_forward(self) -> None:
        """Weights may be finite and overflow inside the network: such a policy is neither kept nor published.

        Log-probs do not always show it: a norm makes zeros of what is too large to be squared.
        """
        updater = self.updater
        ids = random_ids(updater.model, PROBE_TOKENS, torch.Generator().manual_seed(0))
        logp_BT = updater.scorer.score([ids[:1]], [[ids[1:]]]).logp_BT
        large = any(
            tensor.numel() and float(tensor.detach().abs().max()) > LARGEST_WEIGHT for tensor in updater.parameters.tensors
        )
        if updater.parameters.ranks.any(large or not bool(torch.isfinite(logp_BT).all())):
            raise NonFiniteError(
                f"update {self.version - 1}: training has diverged: its weights overflow inside the network; nothing of it is "
                f"kept. {CURE}"
            )

    def _checkpoint(self) -> Callable[[], None]:
        """What writes a checkpoint of the current state, which is copied now."""
        updater, version, keep = self.updater, self.version, self.updater.settings.train.keep_checkpoints
        extra = copy.deepcopy({"source": self.source.state_dict(), "run_id": self.run.run_id})
        if updater.parameters.lockstep:
            from gmc.training.shared_saving import shared_checkpoint

            return shared_checkpoint(self.run, updater, version, extra)
        attachments = dict(self.source.attachments())
        state = {part: copied_out(tensors) for part, tensors in training_state(updater, version).items()}

        def write() -> None:
            flush_logs(self.run)
            save_checkpoint(
                self.run.checkpoints,
                version,
                **state,
                extra=extra,
                keep=keep,
                attachments=attachments,
            )

        return write

    def _policy(self) -> Callable[[], None]:
        """What publishes the current policy, which is copied now. Version 0 keeps its dtype: its shards name its hash."""
        version = self.version
        dtype = getattr(torch, self.updater.settings.train.policy_dtype) if version else torch.float32
        if self.updater.parameters.lockstep:
            from gmc.training.shared_saving import shared_policy

            return shared_policy(self.run, self.updater.parameters, version, dtype)
        policy = private_copy(self.updater.model, dtype)
        return lambda: _publish(policy, self.run, version)

    def finish(self) -> None:
        """Publish the last policy, when all planned updates are made."""
        self.publish(wait=True)
        if self.updater.parameters.ranks.is_rank_0:
            self.source.ended(self.version)


def _publish(policy: LanguageModel, run: RunDirectory, version: int) -> None:
    publish_policy(policy, run.policies, version, run.run_id)
