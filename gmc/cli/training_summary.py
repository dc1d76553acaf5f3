"""What a training run came to, in a few lines: how the reward moved, how stale the data was, where things are, what is next."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from gmc.live.overview import SET_ASIDE, SET_ASIDE_REWARD
from gmc.store.best import Scored, best_of, heldout_scores
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory

WINDOW = 50
"""Updates at each end whose mean reward is shown."""

TIMES = ("time/seconds", "time/heldout_seconds")


def mean_of(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Mean of a metric over updates that have it, None where none has."""
    values = [record[name] for record in records if isinstance(record.get(name), int | float)]
    return sum(values) / len(values) if values else None


def summarize(run: RunDirectory) -> Table:
    """The summary of everything the run has logged, those updates included that an earlier command made."""
    records = read_metrics(run.metrics)
    window = min(WINDOW, max(len(records) // 2, 1))
    first, last = mean_of(records[:window], "reward/mean"), mean_of(records[-window:], "reward/mean")
    frozen = _frozen(mean_of(records[-window:], "delay/version_0_share"))
    equal, delay = mean_of(records, "reward/equal_groups_share"), mean_of(records, "delay/mean")
    largest = max((record["delay/max"] for record in records if "delay/max" in record), default=None)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    if first is not None and last is not None:
        table.add_row("reward", f"{first:.3f} in the first {_updates(window)}, {last:.3f} in the last{_many(window)}{frozen}")
    if scores := heldout_scores(records):
        table.add_row("held out", _heldout(scores))
    if delay is not None and largest is not None:
        table.add_row("delay", f"{delay:.1f} updates on average, {largest:.0f} at most")
    if equal is not None:
        table.add_row("groups", f"{100 * equal:.0f} % had equal rewards and taught nothing")
    set_aside = records[-1].get(SET_ASIDE) if records else None
    if set_aside:
        table.add_row("set aside", set_aside_text(set_aside, records[-1].get(SET_ASIDE_REWARD)))
    seconds = sum(record[name] for record in records for name in TIMES if isinstance(record.get(name), int | float))
    table.add_row("time", f"{seconds / 60:.1f} minutes, sampling included" if seconds >= 60 else f"{seconds:.0f} s")
    table.add_row("policies", str(run.policies))
    table.add_row("metrics", str(run.metrics))
    table.add_row("next", f"gmc eval --run {run.path} --base   (beside the untrained model)")
    return table


def set_aside_text(groups: float, reward: float | None) -> str:
    """What `rollout.resample_equal` replaced, for a person."""
    said = f"{groups:.0f} groups with equal rewards, sampled and not trained on"
    return said if reward is None else f"{said} (mean reward {reward:.3f})"


def _heldout(scores: Sequence[Scored]) -> str:
    best, last = best_of(scores), scores[-1]
    assert best is not None
    if best == last:
        return f"{best.score:.3f} at version {best.version}, the last and the best"
    return f"{last.score:.3f} at version {last.version}, best {best.score:.3f} at {best.version} (gmc eval --policy best)"


def _updates(count: int) -> str:
    return "update" if count == 1 else f"{count} updates"


def _many(count: int) -> str:
    return "" if count == 1 else f" {count}"


def _frozen(share: float | None) -> str:
    """A warning where most of the last rollouts come from the untrained policy, whose reward stays what it was."""
    if share is None or share <= 0.5:
        return ""
    return f"; {100 * share:.0f} % of the last rollouts are by version 0, so it cannot show what training changed"
