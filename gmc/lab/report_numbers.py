"""The numbers of a report: arms over seeds, differences paired by seed, Holm's correction, the interquartile mean.

The unit is the training run: its score over problems counts once, and intervals are Student's over seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from gmc.evaluation.paired import Paired, holm, paired
from gmc.evaluation.statistics import seed_interval
from gmc.lab.measures import curve_points, final_score, measure, updates_to, worst_drop
from gmc.lab.report_input import ReportArm, ReportInput
from gmc.lab.results import RunRecord

RESAMPLES = 2000
MANY_TASKS = 3
"""From so many benchmarks on the interquartile mean is shown."""


@dataclass(frozen=True)
class Over:
    """Mean of one value a run, half the width of Student's 95 % interval (None for one run, and for equal values), and how many
    runs have a value."""

    mean: float
    reach: float | None
    runs: int


def over(values: Sequence[float | None]) -> Over | None:
    """Over the runs that have a value; None where none has."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean, interval = float(np.mean(known)), seed_interval(known)
    return Over(mean, None if interval is None else interval[1] - mean, len(known))


def of_runs(arm: ReportArm, number: Callable[[RunRecord], float | None]) -> Over | None:
    """A number of each finished run, over them."""
    return over([number(run) for run in arm.runs])


def trained(name: str) -> Callable[[RunRecord], float | None]:
    """A number of the summary of training."""
    return lambda run: run.training.get(name)


def drop(run: RunRecord) -> float | None:
    """The worst fall of the curve of scores below its best so far."""
    return worst_drop(curve_points(run))


@dataclass(frozen=True)
class Reached:
    """Updates until an accuracy: over the runs that reach it, and how many of all do."""

    updates: Over | None
    of: int


def reached(arm: ReportArm, level: float) -> Reached:
    """By straight lines between the points of the curve of scores."""
    return Reached(over([updates_to(curve_points(run), level) for run in arm.runs]), len(arm.runs))


@dataclass(frozen=True)
class Difference:
    """second − first in one context, paired over the seeds that both have. ahead: seeds on which second is higher; holm: the
    p-value corrected for the whole family, None where there is none."""

    first: ReportArm
    second: ReportArm
    measure: str
    paired: Paired
    ahead: int
    holm: float | None


def differences(found: ReportInput) -> list[Difference]:
    """The declared family, corrected together. Pairs that share no seed are left out."""
    made = [
        difference
        for first, second in _pairs(found)
        for name in (found.compare.measures if found.compare else [])
        if (difference := _difference(first, second, name)) is not None
    ]
    tested = [each for each in made if each.paired.p_value is not None]
    corrected = iter(holm([each.paired.p_value for each in tested if each.paired.p_value is not None]))
    return [Difference(**{**vars(each), "holm": None if each.paired.p_value is None else next(corrected)}) for each in made]


def _pairs(found: ReportInput) -> list[tuple[ReportArm, ReportArm]]:
    if found.compare is None:
        return []
    names = list(dict.fromkeys(arm.name for arm in found.arms))
    baseline = found.compare.baseline
    wanted = [(baseline, name) for name in names if name != baseline] if baseline else [(a, b) for a, b in found.compare.pairs]
    by_place = {(arm.name, arm.context): arm for arm in found.arms}
    return [
        (by_place[first, context], by_place[second, context])
        for context in found.contexts()
        for first, second in wanted
        if (first, context) in by_place and (second, context) in by_place
    ]


def _difference(first: ReportArm, second: ReportArm, name: str) -> Difference | None:
    ours, theirs = ({run.seed: measure(run, name) for run in arm.runs} for arm in (first, second))
    pairs = [(a, b) for seed, a in ours.items() if a is not None and (b := theirs.get(seed)) is not None]
    if not pairs:
        return None
    result = paired([a for a, _ in pairs], [b for _, b in pairs])
    return Difference(first, second, name, result, sum(b > a for a, b in pairs), None)


@dataclass(frozen=True)
class Interquartile:
    """Mean of the middle half of all (run, benchmark) scores, with a stratified bootstrap interval: runs are drawn anew within
    each benchmark (Agarwal et al. 2021)."""

    value: float
    low: float
    high: float
    runs: int
    tasks: int


def interquartile_mean(scores: Sequence[Sequence[float]], seed: int = 0) -> Interquartile:
    """scores: of each benchmark, one a run; at least two runs each."""

    def middle(*samples: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(stats.trim_mean(np.concatenate(samples, axis=axis), 0.25, axis=axis))

    samples = [np.asarray(each, dtype=float) for each in scores]
    value = float(middle(*samples, axis=-1))
    if all(np.all(each == each[0]) for each in samples):
        return Interquartile(value, value, value, len(samples[0]), len(samples))
    drawn = stats.bootstrap(
        samples, middle, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(seed), vectorized=True
    )
    interval = drawn.confidence_interval
    return Interquartile(value, float(interval.low), float(interval.high), len(samples[0]), len(samples))


def benchmark_scores(arm: ReportArm) -> dict[str, list[float]]:
    """The main score of every run, by benchmark; only benchmarks that all runs have."""
    names = [name for name in (arm.runs[0].scores if arm.runs else {}) if all(name in run.scores for run in arm.runs)]
    only = {name: [final_score(_with_one(run, name)) for run in arm.runs] for name in names}
    return {name: [value for value in values if value is not None] for name, values in only.items()}


def _with_one(run: RunRecord, benchmark: str) -> RunRecord:
    return RunRecord(**{**vars(run), "scores": {benchmark: run.scores[benchmark]}})


def middle_of_many(arm: ReportArm) -> Interquartile | None:
    """The interquartile mean where there are many benchmarks and at least two runs, else None."""
    scores = benchmark_scores(arm)
    if len(scores) < MANY_TASKS or len(arm.runs) < 2:
        return None
    return interquartile_mean(list(scores.values()))
