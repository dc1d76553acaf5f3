"""What a report is made of: arms over seeds, from results files, sweeps' folders or run directories."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gmc.errors import DataError, UsageError
from gmc.evaluation.arms import group_by_arm, read_trained_run
from gmc.lab.measures import is_binary
from gmc.lab.results import FINISHED, Results, RunRecord
from gmc.lab.results_of_run import collect_run
from gmc.lab.selection import Candidate, candidates, winners
from gmc.lab.sweep import RESULTS, results_of
from gmc.lab.sweep_file import Compared, Sweep
from gmc.lab.sweep_plan import values_text
from gmc.live.listing import find_runs
from gmc.store.files import strict_json
from gmc.store.run_directory import RUN_FILE, RunDirectory
from gmc.store.saved_settings import read_versions

RULE = "estimator.name"
MOST_NAMED = 4
"""Runs that a report's title names."""


@dataclass(frozen=True)
class ReportArm:
    """Runs that differ in nothing but their seed. name: of the arm; values: of the axes, but for those that were tuned; chosen:
    of those; runs: the finished ones, by seed; failed: the others."""

    name: str
    values: Mapping[str, Any]
    chosen: Mapping[str, Any]
    runs: tuple[RunRecord, ...]
    failed: tuple[RunRecord, ...] = ()

    @property
    def context(self) -> str:
        """The values in words; empty where the arm has none."""
        return ", ".join(values_text(self.values))

    @property
    def seeds(self) -> list[int]:
        """Of the finished runs, ascending."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class ReportInput:
    """Everything that a report shows. arms: of the verdict, in the order of the study; tuned: cells that competed for being
    chosen, of each sweep; tuning_seeds: seeds that chose something; sources: what was read; unevaluated: runs without
    scores."""

    title: str
    question: str
    arms: Sequence[ReportArm]
    compare: Compared | None
    tuned: Sequence[tuple[Sweep, Candidate, bool]] = ()
    tuning_seeds: frozenset[int] = frozenset()
    sources: Sequence[str] = ()
    notes: Sequence[str] = field(default_factory=list)
    unevaluated: Sequence[Path] = ()

    @property
    def records(self) -> list[RunRecord]:
        """Every run of the verdict."""
        return [run for arm in self.arms for run in (*arm.runs, *arm.failed)]

    @property
    def binary(self) -> bool:
        """Whether every score is a share of right answers, to be shown in percent."""
        return all(is_binary(run) for run in self.records)

    def contexts(self) -> list[str]:
        """The different values of the axes, in order."""
        return list(dict.fromkeys(arm.context for arm in self.arms))


def read_input(paths: Sequence[Path], baseline: str | None = None) -> ReportInput:
    """Read results files, sweeps' folders, run directories, or folders of them (not mixed).

    baseline: the arm that others are compared with, where the study names none. Raises `UsageError` for a verdict on a seed
    that chose something, in this study or in another that stands beside it.
    """
    paths = [found for path in paths for found in _runs_below(path)]
    runs = [path for path in paths if (path / RUN_FILE).is_file()]
    if runs and len(runs) < len(paths):
        other = next(path for path in paths if path not in runs)
        raise UsageError(f"{other}: no run directory, and {runs[0]} is one; report on runs or on results of sweeps")
    found = _of_runs(runs) if runs else _of_results([results_of(path) for path in paths])
    return replace(found, compare=_comparisons(found, baseline))


def _runs_below(path: Path) -> list[Path]:
    """The trained runs in a folder that is itself neither a run nor a sweep's; anything else as it is."""
    if not path.is_dir() or (path / RUN_FILE).is_file() or (path / RESULTS).is_file():
        return [path]
    runs = [run for run in find_runs(path) if RunDirectory.open(run).has_trained]
    if not runs:
        raise UsageError(f"{path}: no trained run in it, and not the folder of a sweep ({RESULTS})")
    return runs


def _of_results(files: Sequence[Results]) -> ReportInput:
    tuning_seeds = frozenset(seed for results in files for seed in results.tuning_seeds)
    arms, tuned = [], []
    for results in files:
        extra = {"study": results.sweep.name} if len(files) > 1 else {}
        verdict = [record for record in _newest(results.records) if record.stage == "verdict"]
        for record in verdict:
            if record.seed in tuning_seeds:
                raise UsageError(
                    f"{results.path}: run {record.run} is of the verdict, and its seed {record.seed} chose settings; a report "
                    "does not mix them. Give the verdict other seeds, or report on each file alone"
                )
        arms += _arms(results.sweep, verdict, extra)
        best = winners(results)
        tuned += [(results.sweep, each, each in best) for each in candidates(results.sweep, _newest(results.records))]
    first = files[0].sweep
    return ReportInput(
        title=", ".join(results.sweep.name for results in files),
        question=first.question if len(files) == 1 else "",
        arms=arms,
        compare=first.compare,
        tuned=tuned,
        tuning_seeds=tuning_seeds,
        sources=_short_names([results.path for results in files]),
        notes=[note for results in files for note in _missing(results)],
    )


def _newest(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The newest record of each cell and seed: settings that changed since leave older ones behind."""
    newest: dict[str, RunRecord] = {}
    for record in records:
        newest[strict_json([record.arm, record.stage, record.seed, record.values, record.chosen])] = record
    return list(newest.values())


def _arms(sweep: Sweep, records: Sequence[RunRecord], extra: Mapping[str, Any]) -> list[ReportArm]:
    groups: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda each: each.seed):
        if record.arm in sweep.arms:  # an arm that left the study stays in its file
            groups.setdefault(strict_json([record.arm, record.values, record.chosen]), []).append(record)
    order = list(sweep.arms)
    made = [_arm(group[0].arm, {**extra, **group[0].values}, group) for group in groups.values()]
    return sorted(made, key=lambda arm: order.index(arm.name))


def _arm(name: str, values: Mapping[str, Any], records: Sequence[RunRecord]) -> ReportArm:
    finished = tuple(record for record in records if record.finished)
    return ReportArm(name, values, records[0].chosen, finished, tuple(record for record in records if not record.finished))


def _missing(results: Results) -> list[str]:
    """What a study has not come to yet."""
    sweep, notes = results.sweep, []
    if sweep.select and not any(record.stage == "verdict" for record in results.records):
        notes.append(f"{sweep.name}: no run of the verdict yet; what is shown is the tuning alone, which decides nothing")
    seeds = {record.seed for record in results.records if record.stage == "verdict"}
    if seeds and (left := [seed for seed in sweep.seeds if seed not in seeds]):
        notes.append(f"{sweep.name}: nothing is recorded yet of seeds {', '.join(map(str, left))}")
    failed = sum(not record.finished for record in results.records)
    return [*notes, f"{sweep.name}: {failed} run{'s' if failed > 1 else ''} failed"] if failed else notes


def _of_runs(paths: Sequence[Path]) -> ReportInput:
    """Arms of run directories: named by their rule, apart by the other settings in which they differ."""
    trained = {run.path: run for run in map(read_trained_run, paths)}
    arms = []
    for group in group_by_arm(list(trained.values())):
        records = [_record(run.path, run.settings, run.seed) for run in group.runs]
        named = {key: value for key, value in group.differing.items() if value and key != "estimator"}
        records = [replace(record, values=named) for record in records]
        arms.append(_arm(str(group.runs[0].settings.get(RULE, "runs")), named, records))
    short = dict(zip(paths, _short_names(paths), strict=True))
    unevaluated = [path for arm in arms for path in _without_scores(arm, paths)]
    notes = [f"{short[path]}: not evaluated; gmc eval --run RUN --policy all scores it" for path in unevaluated]
    title = ", ".join(short.values()) if len(short) <= MOST_NAMED else f"{len(short)} runs"
    return ReportInput(title, "", arms, None, sources=[*short.values()], notes=notes, unevaluated=unevaluated)


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Paths for a page that others read: without the folders of this machine, as long as it takes to tell them apart."""
    absolute = [path.resolve() for path in paths]
    for parts in range(1, max(len(path.parts) for path in absolute) + 1):
        names = ["/".join(path.parts[-parts:]) for path in absolute]
        if len({*names}) == len({*absolute}):
            break
    return names


def _record(path: Path, settings: Mapping[str, Any], seed: int) -> RunRecord:
    clip = settings.get("optimizer.clip_norm", 1.0)
    if not isinstance(clip, int | float):
        raise DataError(f"{path}: its optimizer.clip_norm is {clip!r}; restore its settings from a copy")
    found = collect_run(path, clip_norm=clip)
    content = {key: value for key, value in vars(found).items() if key != "updates"}
    rule = str(settings.get(RULE, "runs"))
    return RunRecord(
        run=str(path), arm=rule, stage="verdict", seed=seed, settings={**settings, "seed": seed}, status=FINISHED,
        versions=read_versions(RunDirectory.open(path).settings("train")), **content,
    )  # fmt: skip


def _without_scores(arm: ReportArm, paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths for run in arm.runs if run.run == str(path) and not run.scores]


def _comparisons(found: ReportInput, baseline: str | None) -> Compared | None:
    names = list(dict.fromkeys(arm.name for arm in found.arms))
    if baseline is not None:
        if baseline not in names:
            raise UsageError(f"--baseline {baseline}: the arms are {', '.join(names) or 'not there yet'}")
        return Compared(baseline=baseline)
    if found.compare is None and len(names) > 1:
        return Compared(baseline=names[0])
    return found.compare
