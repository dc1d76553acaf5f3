"""From toy results to verdicts: each rule at the settings and rate that tuning seeds chose, compared on the other seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from gmc.errors import UsageError
from gmc.evaluation.paired import Paired, holm, paired

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One rule at one delay under one optimizer, over the verdict seeds.

    arm, rate: what tuning chose out of `candidates`; final: mean J at the end, and reach, half its 95 % interval; area: mean J
    over the run; drop: mean of the worst fall from a peak. The differences are to the reference rule, by seed, and None for the
    reference itself; holm: the final difference's p-value, corrected for all differences of the report.
    """

    delay: str
    optimizer: str
    rule: str
    arm: str
    rate: float
    candidates: int
    final: float
    reach: float | None
    area: float
    drop: float
    difference: Paired | None
    area_difference: Paired | None
    holm: float | None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def default_tuning(seeds: int) -> int:
    """A third of the seeds chooses, the others judge."""
    return seeds // 3


def entrant(record: Record, apart: Sequence[str]) -> str:
    """What competes as one: a rule, and those of its settings that are told apart."""
    return " ".join([record["rule"], *(f"{key}={value}" for key, value in record["settings"].items() if key in apart)])


def verdicts(
    records: Sequence[Record], *, reference: str, tuning: int | None = None, apart: Sequence[str] = ()
) -> list[Verdict]:
    """Every rule of every delay and optimizer, best first.

    tuning: how many of the first seeds choose settings and rates, while the other seeds judge; 0 lets all seeds do both, which
    favors rules with more candidates; default a third. apart: settings whose values compete with each other, as if they were
    rules, where any other setting is chosen. A run that left the numbers counts as J = 0.

    Raises `UsageError` when the reference is missing or no seed is left to judge.
    """
    cells: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in records:
        if "error" not in record:
            rules = cells.setdefault((record["optimizer"], record["delay"]), {})
            rules.setdefault(entrant(record, apart), []).append(record)
    found = []
    for rules in cells.values():
        if reference not in rules:
            raise UsageError(f"no results of the reference {reference}; name one of {', '.join(rules)} with --reference")
        found.append(_of_cell(rules, reference, tuning))
    flat = [verdict for group in found for verdict in group]
    tested = [verdict for verdict in flat if verdict.difference is not None and verdict.difference.p_value is not None]
    corrected = holm([verdict.difference.p_value for verdict in tested])  # type: ignore[union-attr,misc]
    by_place = {id(verdict): p_value for verdict, p_value in zip(tested, corrected, strict=True)}
    return [Verdict(**{**vars(verdict), "holm": by_place.get(id(verdict))}) for verdict in flat]


def _of_cell(rules: Mapping[str, Sequence[Record]], reference: str, tuning: int | None) -> list[Verdict]:
    chosen = {rule: choose(records, tuning) for rule, records in rules.items()}
    base = chosen[reference]
    found = []
    for rule, best in chosen.items():
        judged = _judged(best, tuning)
        final_S = _values(best, "final")[judged]
        other = None if rule == reference else (_values(base, "final")[judged], _values(base, "area")[judged])
        found.append(
            Verdict(
                delay=best["delay"],
                optimizer=best["optimizer"],
                rule=rule,
                arm=best["arm"],
                rate=best["rate"],
                candidates=len(rules[rule]),
                final=float(np.mean(final_S)),
                reach=_reach(final_S),
                area=float(np.mean(_values(best, "area")[judged])),
                drop=float(np.mean(_values(best, "drop")[judged])),
                difference=None if other is None else paired(other[0], final_S),
                area_difference=None if other is None else paired(other[1], _values(best, "area")[judged]),
                holm=None,
            )
        )
    return sorted(found, key=lambda verdict: -verdict.final)


def choose(records: Sequence[Record], tuning: int | None) -> Record:
    """The record whose tuning seeds end highest; all seeds choose when tuning is 0."""
    return max(records, key=lambda record: float(np.mean(_values(record, "final")[: _tuning(record, tuning) or None])))


def _judged(record: Record, tuning: int | None) -> slice:
    first = _tuning(record, tuning)
    if first >= record["seeds"]:
        raise UsageError(f"--tuning {first} leaves none of the {record['seeds']} seeds to judge")
    return slice(first, None)


def _tuning(record: Record, tuning: int | None) -> int:
    return default_tuning(record["seeds"]) if tuning is None else tuning


def _values(record: Record, name: str) -> list[float]:
    return [0.0 if value is None else value for value in record[name]]


def _reach(values_S: Sequence[float]) -> float | None:
    count = len(values_S)
    return None if count < 2 else float(stats.t.ppf(0.975, count - 1) * np.std(values_S, ddof=1) / count**0.5)
