"""Choosing settings on tuning seeds: of the cells that compete, the one with the highest mean over all of these seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gmc.errors import UsageError
from gmc.lab.measures import measure
from gmc.lab.results import Results, RunRecord
from gmc.lab.sweep_file import Sweep
from gmc.lab.sweep_plan import Choice, Values, as_settings, cell_key
from gmc.store.files import strict_json


@dataclass(frozen=True)
class Candidate:
    """One cell that competes. scores: of each tuning seed, None where the run failed or is missing."""

    arm: str
    rest: Values
    chosen: Values
    scores: Sequence[float | None]

    @property
    def mean(self) -> float | None:
        """None unless every tuning seed has a score: a cell that failed once is not chosen."""
        known = [score for score in self.scores if score is not None]
        return float(np.mean(known)) if known and len(known) == len(self.scores) else None


def candidates(sweep: Sweep, records: Iterable[RunRecord]) -> list[Candidate]:
    """Every cell that was tuned, in the order of the records."""
    select = sweep.select
    if select is None:
        return []
    found: dict[tuple[str, str], tuple[RunRecord, dict[int, float | None]]] = {}
    for record in records:
        if record.stage == "tuning" and record.seed in select.seeds:
            key = (record.arm, cell_key("", record.values))
            found.setdefault(key, (record, {}))[1][record.seed] = measure(record, select.measure)
    listed = []
    for record, scores in found.values():
        rest = {key: value for key, value in record.values.items() if key not in select.axes}
        chosen = {key: value for key, value in record.values.items() if key in select.axes}
        listed.append(Candidate(record.arm, rest, chosen, [scores.get(seed) for seed in select.seeds]))
    return listed


def choose(sweep: Sweep, records: Iterable[RunRecord]) -> Choice:
    """The best cell of each arm at each value of its other axes. Of equal ones the first; a group without any has no entry."""
    best: dict[str, Candidate] = {}
    for candidate in candidates(sweep, records):
        key = cell_key(candidate.arm, candidate.rest)
        mean = candidate.mean
        if mean is not None and (key not in best or mean > (best[key].mean or 0.0)):
            best[key] = candidate
    return {key: candidate.chosen for key, candidate in best.items()}


def at_an_end(sweep: Sweep, candidate: Candidate) -> list[str]:
    """The chosen axes of three or more ordered values of which the first or the last was taken: the best may lie beyond."""
    axes = {**sweep.axes, **sweep.arms[candidate.arm].axes} if candidate.arm in sweep.arms else {}
    return [
        key
        for key, value in candidate.chosen.items()
        if len(axes.get(key, [])) >= 3 and _ordered(axes[key]) and value in (min(axes[key]), max(axes[key]))
    ]


def _ordered(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def chosen_elsewhere(results: Results, sweep: Sweep) -> dict[str, dict[str, Any]]:
    """The settings that another sweep chose, for each arm of this one that takes some.

    Raises `UsageError` when an arm names one without a choice, or when the other sweep chose anew for several settings.
    """
    by_arm: dict[str, list[Values]] = {}
    other = results.sweep
    for candidate in _best(other, results.records):
        by_arm.setdefault(candidate.arm, []).append(candidate.chosen)
    taken = {}
    for name, arm in sweep.arms.items():
        source = arm.tuned or name
        if source not in by_arm:
            if arm.tuned or source in other.arms:
                raise UsageError(f"{results.path}: nothing is chosen for arm {source} yet; finish the tuning of {other.name}")
            continue
        if len({strict_json(dict(values)) for values in by_arm[source]}) > 1:
            raise UsageError(f"{results.path}: arm {source} has several choices; state its settings in [arms.{name}.settings]")
        taken[name] = as_settings(by_arm[source][0])
    return taken


def _best(sweep: Sweep, records: Sequence[RunRecord]) -> list[Candidate]:
    choice = choose(sweep, records)
    return [each for each in candidates(sweep, records) if choice.get(cell_key(each.arm, each.rest)) == each.chosen]


def winners(results: Results) -> list[Candidate]:
    """What a sweep chose, with the tuning scores behind it."""
    return _best(results.sweep, results.records)
