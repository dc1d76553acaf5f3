"""What `gmc status` knows of a run, from file names, logs and heartbeats alone. Imports neither torch nor pyarrow."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from gmc.delays.base import GroupRef, delay_of
from gmc.delays.version_0 import VERSION_0_SHARE, is_mostly_offline, warning
from gmc.errors import DataError
from gmc.live.claims import read_ledger
from gmc.live.ending import has_ended
from gmc.live.heartbeats import TRAINER, Heartbeat, read_heartbeats
from gmc.store.best import best_of, heldout_scores
from gmc.store.files import is_ready
from gmc.store.logs import read_metrics, read_used
from gmc.store.policies import list_policies
from gmc.store.run_directory import CHECKPOINT_NAME, ROLLOUT_NAME, RunDirectory
from gmc.store.saved_settings import read_run_settings

SET_ASIDE, SET_ASIDE_REWARD = "rollouts/groups_set_aside_so_far", "rollouts/set_aside_reward_mean_so_far"
SHOWN_METRICS = ("reward/mean", VERSION_0_SHARE, "ratio/ess_share", "ratio/groups_capped_share", "optimizer/gradient_norm")


def overview(run: RunDirectory) -> dict[str, Any]:
    """Everything that `gmc status --json` prints.

    Ages and durations in seconds, rates a second of generating. batches_launched = made + in work; made = trained + waiting.
    group_uses counts a group once for every update that used it, groups_trained once; uses_to_come: of groups made so far.
    whole_batches: whether updates took all groups of the batches they used; where not, groups say how far training is.
    groups_in_flight, groups_set_aside, set_aside_reward: as the last update logged them, None where it did not.
    """
    now = time.time()
    used = read_used(run.used)
    metrics = read_metrics(run.metrics)
    versions = _versions(run)
    ledger = read_ledger(run)
    trained = {group.batch for groups in used for group in groups}
    plan = _planned(run)
    delays = _summary(_delays(used, versions, plan.first)) if not metrics or "delay/mean" in metrics[-1] else None
    policies = list_policies(run.policies)
    heartbeats = read_heartbeats(run.followers)
    errors = _errors([heartbeat for heartbeat in heartbeats.values() if heartbeat.error], now)
    trainer = heartbeats.pop(TRAINER, None)
    return {
        "run": str(run.path),
        "run_id": run.run_id,
        "model": run.record.model,
        "seed": run.record.seed,
        "updates": len(used),
        "planned_updates": plan.updates,
        "ended": has_ended(run) or (plan.updates is not None and len(used) >= plan.updates),
        "policy_version": policies[-1][0] if policies else None,
        "checkpoint": max(_checkpoints(run), default=None),
        "batches_launched": ledger.launched,
        "batches_in_work": ledger.launched - len(versions),
        "batches_made": len(versions),
        "batches_trained": len(trained),
        "batches_waiting": len(versions.keys() - trained),
        **_uses(used, metrics, plan.prompts),
        "delays": delays,
        "delay": plan.delay,
        "estimator": plan.rule,
        "warnings": _warnings(metrics, delays, plan.delay) if len(used) >= (plan.updates or 0) else [],
        "rewards": [record["reward/mean"] for record in metrics if isinstance(record.get("reward/mean"), int | float)],
        "heldout": _heldout(metrics),
        "metrics": {name: metrics[-1][name] for name in SHOWN_METRICS if metrics and name in metrics[-1]},
        "trainer": _process(trainer, now) if trainer else None,
        "worker": run.holder(),
        "followers": [_process(heartbeat, now) for heartbeat in heartbeats.values()],
        "errors": errors,
    }


def _errors(failed: Sequence[Heartbeat], now: float) -> list[dict[str, Any]]:
    """What processes wrote of how they ended, the latest first."""
    latest = sorted(failed, key=lambda heartbeat: heartbeat.beat_at, reverse=True)
    return [{"who": each.name, "age_seconds": now - each.beat_at, "error": each.error} for each in latest]


def _versions(run: RunDirectory) -> dict[int, int]:
    """The policy version of every batch on disk, by its file name."""
    if not run.rollouts.is_dir():
        return {}
    matches = (ROLLOUT_NAME.fullmatch(path.name) for path in run.rollouts.iterdir())
    return {int(match[1]): int(match[2]) for match in matches if match}


def _checkpoints(run: RunDirectory) -> list[int]:
    if not run.checkpoints.is_dir():
        return []
    matches = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in run.checkpoints.iterdir()]
    return [int(match[1]) for match, path in matches if match and is_ready(path)]


class _Plan(NamedTuple):
    """What the run was started with, None before training. first: the version of its shards that its initial weights are;
    prompts: groups a batch."""

    updates: int | None = None
    delay: str | None = None
    rule: str | None = None
    first: int = 0
    prompts: int | None = None


def _planned(run: RunDirectory) -> _Plan:
    path = run.settings("train")
    if not path.is_file():
        return _Plan()
    settings = read_run_settings(path)
    train = settings.get("train")
    planned = train.get("updates") if isinstance(train, dict) else None
    if type(planned) is not int:
        raise DataError(f"{path}: damaged (train.updates is {planned!r}); restore it from a copy, or start another --run")
    first = train.get("start_version", 0) if isinstance(train, dict) else 0
    rule, prompts = settings.get("estimator", {}).get("name"), settings.get("rollout", {}).get("prompts")
    return _Plan(planned, settings.get("delay"), rule, max(0, first), prompts)


def _uses(
    used: Sequence[Sequence[GroupRef]], metrics: Sequence[dict[str, Any]], prompts: int | None
) -> dict[str, float | None]:
    """How often groups were used, for delays that use one more than once, and what became of the others."""
    last, trained = metrics[-1] if metrics else {}, {group for groups in used for group in groups}
    return {
        "whole_batches": prompts is None or {*Counter(group.batch for group in trained).values()} <= {prompts},
        "groups_trained": len(trained),
        "group_uses": sum(len(groups) for groups in used),
        "uses_to_come": last.get("rollouts/groups_waiting"),
        "groups_in_flight": last.get("rollouts/groups_in_flight"),
        "groups_set_aside": last.get(SET_ASIDE),
        "set_aside_reward": last.get(SET_ASIDE_REWARD),
    }


def _heldout(metrics: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The best and the last score on held-out problems, None where none were scored."""
    scores = heldout_scores(metrics)
    best = best_of(scores)
    return None if best is None else {"best": vars(best), "last": vars(scores[-1])}


def _warnings(metrics: Sequence[dict[str, Any]], delays: dict[str, float] | None, delay: str | None) -> list[str]:
    """What the end of a run says of it."""
    share = metrics[-1].get(VERSION_0_SHARE) if metrics else None
    if share is None or not is_mostly_offline(share) or delays is None or not delays["max"]:
        return []
    return [warning(share, str(delay), len(metrics))]


def _delays(used: Sequence[Sequence[GroupRef]], versions: dict[int, int], first: int) -> list[int]:
    """The delay of every group trained so far whose shard is on disk, in updates, in the order of use.

    first: the version that the run started from.
    """
    return [
        delay_of(update, versions[group.batch] - first)
        for update, groups in enumerate(used)
        for group in groups
        if group.batch in versions
    ]


def _summary(delays: Sequence[int]) -> dict[str, float] | None:
    if not delays:
        return None
    ordered = sorted(delays)

    def quantile(share: float) -> int:
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    return {
        "groups": len(ordered),
        "mean": sum(ordered) / len(ordered),
        "min": ordered[0],
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "max": ordered[-1],
        "last": delays[-1],
    }


def _process(heartbeat: Heartbeat, now: float) -> dict[str, Any]:
    age = now - heartbeat.beat_at
    busy = heartbeat.busy_seconds
    return {
        "name": heartbeat.name,
        "alive": not heartbeat.final and age <= heartbeat.lease_seconds,
        "ended": heartbeat.final,
        "state": heartbeat.state,
        "version": heartbeat.version,
        "batch": heartbeat.batch,
        "batches": heartbeat.batches,
        "responses": heartbeat.responses,
        "responses_per_second": heartbeat.responses / busy if busy else None,
        "tokens_per_second": heartbeat.tokens / busy if busy else None,
        "age_seconds": age,
    }
