"""Differences of arms that share training seeds, paired by seed: the analysis that rules compared on the same seeds ask for.

Runs of one seed share problems and version-0 rollouts, so their difference has less noise than either score. Compared are arms
that differ in one setting alone, each with the first; Holm's correction is over all differences shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gmc.evaluation.arms import Arm, TrainedRun, common_window, ways_of_asking
from gmc.evaluation.paired import Paired, holm, paired

PREFERRED = "estimator"
"""The setting to compare where arms differ in several."""


@dataclass(frozen=True)
class ArmDifference:
    """second − first in one score. score: what is compared, in words; ahead: seeds on which second is higher; holm: p-value
    corrected for all differences, None for a single seed; binary: whether the score is a share of what is right or wrong."""

    first: Arm
    second: Arm
    score: str
    paired: Paired
    ahead: int
    holm: float | None
    binary: bool


def arm_differences(arms: Sequence[Arm]) -> list[ArmDifference]:
    """Every difference of arms that share a seed, in the order of the arms."""
    window = common_window(arms)
    made = [
        difference
        for first, second in comparable(arms)
        for score in _scores(first, second, window)
        if (difference := _difference(first, second, score, window)) is not None
    ]
    corrected = iter(holm([p for each in made if (p := each.paired.p_value) is not None]))
    return [ArmDifference(**{**vars(each), "holm": None if each.paired.p_value is None else next(corrected)}) for each in made]


def comparable(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Pairs of arms that agree in every setting but one: each arm with the first of those that share the other settings."""
    names = list(arms[0].differing)
    if not names:
        return []
    varied = PREFERRED if PREFERRED in names else names[-1]
    groups: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        groups.setdefault(tuple(value for name, value in arm.differing.items() if name != varied), []).append(arm)
    return [(group[0], other) for group in groups.values() for other in group[1:]]


def _scores(first: Arm, second: Arm, window: int) -> list[str]:
    """Training reward, and every score of every way in which both were evaluated."""
    shared = ways_of_asking(first.runs).keys() & ways_of_asking(second.runs).keys()
    return [_reward(window), *(f"{way}\n{name}" for way in sorted(shared) for name in _names(first, way))]


def _names(arm: Arm, way: str) -> list[str]:
    return list(ways_of_asking(arm.runs)[way].record["scores"])


def _reward(window: int) -> str:
    return f"training reward, last {window}"


def _difference(first: Arm, second: Arm, score: str, window: int) -> ArmDifference | None:
    ours, theirs = (_by_seed(arm.runs, score, window) for arm in (first, second))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    result = paired([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    ahead = sum(theirs[seed] > ours[seed] for seed in seeds)
    return ArmDifference(first, second, _in_words(first, score), result, ahead, None, _is_binary((first, second), score))


def _by_seed(runs: Sequence[TrainedRun], score: str, window: int) -> Mapping[int, float]:
    way, newline, name = score.partition("\n")
    if not newline:
        return {run.seed: run.final_reward(window) for run in runs}
    return {run.seed: float(run.results[way].record["scores"][name]["value"]) for run in runs if way in run.results}


def _is_binary(arms: Sequence[Arm], score: str) -> bool:
    way, newline, name = score.partition("\n")
    if not newline:
        return all(run.binary for arm in arms for run in arm.runs)
    return ways_of_asking(arms[0].runs)[way].rewarded.is_binary(name)


def _in_words(arm: Arm, score: str) -> str:
    way, newline, name = score.partition("\n")
    return f"{ways_of_asking(arm.runs)[way].record['benchmark']}, {name}" if newline else score
