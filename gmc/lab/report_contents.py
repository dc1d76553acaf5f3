"""Which tables a report has, each with how to read it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gmc.lab.measures import area, curve_points, final_score
from gmc.lab.report_input import ReportInput
from gmc.lab.report_numbers import Difference, Over, drop, middle_of_many, of_runs, reached, trained
from gmc.lab.report_tables import NUMBER, PERCENT, POINTS, Cell, Column, Table, cell_text
from gmc.lab.results import RunRecord
from gmc.lab.results_of_run import LAST
from gmc.lab.selection import at_an_end
from gmc.lab.sweep_plan import values_text
from gmc.problems.benchmarks import BENCHMARKS, file_benchmark

MEASURES = {"final": "score of the last policy", "area": "mean over the curve of scores"}
PROBLEMS = "problems.source"


def tables_of(found: ReportInput, compared: list[Difference]) -> list[Table]:
    """Every table that has rows."""
    made = [_scores(found), _compared(found, compared), _health(found), _tuning(found), _failed(found)]
    return [table for table in made if table is not None and table.rows]


def _scores(found: ReportInput) -> Table:
    level, share, points = found.compare.reach if found.compare else None, *_kinds(found)
    columns = [
        Column("arm"),
        Column("setting"),
        Column("final", share),
        Column("curve area", share),
        Column("worst drop", points),
        Column(f"training reward, {_last(found)}", share),
        *(
            [Column(f"updates to {f'{100 * level:g} %' if found.binary else level}", NUMBER), Column("reached by")]
            if level
            else []
        ),
        *([Column("interquartile mean", share)] if _has_many(found) else []),
        Column("chosen"),
        Column("seeds"),
    ]
    rows: list[list[Cell]] = []

    def shown(value: float) -> str:
        return cell_text(value, share)

    for arm in found.arms:
        row: list[Cell] = [arm.name, arm.context, of_runs(arm, final_score)]
        row += [of_runs(arm, lambda run: area(curve_points(run))), of_runs(arm, drop), of_runs(arm, trained("reward_last"))]
        if level:
            there = reached(arm, level)
            row += [there.updates, f"{there.updates.runs if there.updates else 0} of {there.of}"]
        if _has_many(found):
            middle = middle_of_many(arm)
            row += [None if middle is None else " ".join((shown(middle.value), f"[{shown(middle.low)}, {shown(middle.high)}]"))]
        rows.append([*row, ", ".join(values_text(arm.chosen)), " ".join(map(str, arm.seeds))])
    return Table("scores", "Scores", columns, rows, _scores_note(found, level))


def _scores_note(found: ReportInput, level: float | None) -> str:
    asked = asked_text(found)
    note = f"Scored on {asked}. " if asked else ""
    note += (
        "Mean over training runs ± half of Student's 95 % interval over seeds; ± –: the "
        "runs are equal, so no interval can be estimated. final: the last policy's avg@n (else greedy), each set of problems "
        "counting once; curve area: mean height of the curve of scores; worst drop: its deepest fall below its best so far. "
        "Intervals of two arms may overlap although their paired difference is certain."
    )
    if level:
        note += " Updates to an accuracy are a mean over the runs that reach it, which flatters an arm that few runs reach."
    if _has_many(found):
        note += " Interquartile mean: of the middle half of all (run, benchmark) scores, with a stratified bootstrap interval."
    return note


def _last(found: ReportInput) -> str:
    """Over which updates at the end the training reward is averaged; short runs have fewer than others."""
    counts = {min(LAST, run.training.get("updates", LAST)) for arm in found.arms for run in arm.runs} or {LAST}
    return f"last {max(counts)}" if len(counts) == 1 else f"last {max(counts)} or all of fewer"


def _kinds(found: ReportInput) -> tuple[str, str]:
    """How scores and their differences are shown: in percent and points, or as plain numbers for other rewards."""
    return (PERCENT, POINTS) if found.binary else (NUMBER, NUMBER)


def _has_many(found: ReportInput) -> bool:
    return any(middle_of_many(arm) is not None for arm in found.arms)


def _compared(found: ReportInput, compared: list[Difference]) -> Table:
    points = _kinds(found)[1]
    columns = [
        Column("difference"),
        Column("setting"),
        Column("measure"),
        Column("mean" if points == NUMBER else "points", points),
        Column("± 95 %", points),
        Column("p", NUMBER),
        Column("p, Holm", NUMBER),
        Column("ahead on"),
    ]
    rows: list[list[Cell]] = [
        [
            f"{each.second.name} − {each.first.name}",
            each.first.context,
            MEASURES[each.measure],
            each.paired.mean,
            each.paired.reach,
            each.paired.p_value,
            each.holm,
            f"{each.ahead} of {each.paired.seeds} seeds",
        ]
        for each in compared
    ]
    tested = sum(each.holm is not None for each in compared)
    note = (
        "Differences of runs that share a seed, with Student's 95 % interval of their mean. p: the chance of such a difference "
        "between equal arms, were this the only comparison. "
        + ("1 comparison was" if tested == 1 else f"{tested} comparisons were")
        + " declared and made; Holm's p-values account for all of them: below 0.05 a difference is unlikely to "
        "be chance even though many were looked at. The intervals are not widened for their number."
    )
    return Table("comparisons", "Paired differences", columns, rows, note)


def _health(found: ReportInput) -> Table:
    numbers: list[tuple[Column, Callable[[RunRecord], float | None]]] = [
        (Column("mean delay", NUMBER), trained("delay_mean")),
        (Column("largest delay", NUMBER), trained("delay_max")),
        (Column("version-0 share", PERCENT), trained("version_0_share")),
        (Column("ESS", PERCENT), trained("ess_share")),
        (Column("removed mass", NUMBER), trained("removed_mass")),
        (Column("spread of log ρ", NUMBER), trained("log_rho_std")),
        (Column("weights at zero", PERCENT), trained("zero_weight_share")),
        (Column("largest gradient norm", NUMBER), trained("gradient_norm_max")),
        (Column("clipped updates", PERCENT), trained("gradient_clipped_share")),
        (Column("seconds a run", NUMBER), lambda run: sum(run.seconds.values()) - run.seconds.get("here", 0.0) or None),
    ]
    rows: list[list[Cell]] = [
        [arm.name, arm.context, f"{len(arm.failed)} of {len(arm.runs) + len(arm.failed)}"]
        + [_equal_alone(of_runs(arm, number)) for _, number in numbers]
        for arm in found.arms
    ]
    columns = [Column("arm"), Column("setting"), Column("failed runs"), *(column for column, _ in numbers)]
    note = (
        "Means over all updates of a run, then over seeds. version-0 share: share of the learning-rate mass spent on rollouts "
        "of the initial policy, above one half a run is mostly offline training; ESS: effective sample size of the raw ratios, "
        "1 on-policy; removed mass: mean of (group mean ratio − 1 − ε)₊ with the rule's own ε, else 0.28."
    )
    return Table("staleness", "Staleness and stability", columns, rows, note)


def _equal_alone(cell: Over | None) -> Over | float | None:
    """A mean of equal values is that value: a schedule gives every seed the same delays, which no interval is about."""
    return cell.mean if cell is not None and cell.reach is None else cell


def _tuning(found: ReportInput) -> Table:
    share = _kinds(found)[0]
    axes = list(dict.fromkeys(key for _, each, _ in found.tuned for key in each.chosen))
    rows: list[list[Cell]] = []
    for sweep, each, best in found.tuned:
        ends = ", ".join(key.rpartition(".")[2] for key in at_an_end(sweep, each)) if best else ""
        verdict = f"chosen, at the end of {ends}" if ends else "chosen" if best else ""
        values = [str(each.chosen.get(key, "–")) for key in axes]
        scores = " ".join(cell_text(score, share) for score in each.scores)
        rows.append([each.arm, ", ".join(values_text(each.rest)), *values, each.mean, scores, verdict])
    columns = [Column("arm"), Column("setting"), *(Column(key.rpartition(".")[2]) for key in axes)]
    columns += [Column("mean", share), Column("each seed"), Column("")]
    seeds = ", ".join(map(str, sorted(found.tuning_seeds)))
    note = (
        f"Scores on the tuning seeds ({seeds}), which no verdict uses. The best of many cells looks better here than it is, so "
        "these scores are no result. 'At the end of' an axis: the best value may lie beyond those that were tried."
    )
    return Table("tuning", "What was tried on the tuning seeds", columns, rows, note)


def _failed(found: ReportInput) -> Table:
    rows: list[list[Cell]] = [[arm.name, arm.context, str(run.seed), run.error] for arm in found.arms for run in arm.failed]
    columns = [Column("arm"), Column("setting"), Column("seed"), Column("error")]
    return Table("failed", "Failed runs", columns, rows, "They are missing from every mean above, which may flatter their arm.")


def provenance(found: ReportInput, compared: list[Difference]) -> list[tuple[str, str]]:
    """Where the numbers come from: a name and a text each."""
    records = found.records
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    keys = sorted({key for record in records for key in record.settings})
    differing = [key for key in keys if len({str(record.settings.get(key)) for record in records}) > 1 and key != "seed"]
    verdict = sorted({record.seed for record in records})
    lines = [
        ("read from", ", ".join(found.sources)),
        ("scores of", asked_text(found) or "nothing: no run is evaluated"),
        ("runs", f"{sum(record.finished for record in records)} finished, {sum(not r.finished for r in records)} failed"),
        ("seeds of the verdict", ", ".join(map(str, verdict)) or "none yet"),
        ("seeds used for choosing", ", ".join(map(str, sorted(found.tuning_seeds))) or "none"),
        ("cells tried while choosing", str(len(found.tuned))),
        ("comparisons", f"{len(compared)}, corrected together by Holm's method"),
        ("versions", "; ".join(f"{name} {' and '.join(sorted(each))}" for name, each in sorted(versions.items()))),
    ]
    lines += [(f"differs: {key}", _values(records, key)) for key in differing]
    return lines


def asked_text(found: ReportInput) -> str:
    """What was asked: which problems, and whether training asked them too. Empty where nothing was scored."""
    names = {name for record in found.records for name in record.scores}
    trained_on = {str(record.settings.get(PROBLEMS, "")) for record in found.records}
    return " and of ".join(_problems_text(name, trained_on) for name in sorted(names))


def _problems_text(name: str, trained_on: set[str]) -> str:
    """One set of problems by the name of its scores. A file's is that of the file (`file_benchmark`)."""
    if name in BENCHMARKS:
        return f"the benchmark {name}"
    if any(file_benchmark(source).name == name for source in trained_on if source):
        return f"{name}, the problems that training asked: a high score may be memory"
    return f"{name}, problems of a file that training did not ask by that name"


def _short(value: Any) -> str:
    """A value without the folders of this machine."""
    return Path(value).name if isinstance(value, str) and value.startswith("/") else str(value)


def _values(records: list[RunRecord], key: str) -> str:
    missing = object()
    values = {_short(record.settings.get(key, missing)) for record in records if key in record.settings}
    return ", ".join(sorted(values)) + (" (or not a setting)" if any(key not in record.settings for record in records) else "")
