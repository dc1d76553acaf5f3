"""What a person sees of an evaluation, and the one object of `--json`."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gmc.cli.output import print_json, say, stderr
from gmc.cli.progress import progress_bar
from gmc.config.settings import Settings
from gmc.evaluation.compare import Comparison, compare, comparison_record
from gmc.evaluation.curve import write_curve
from gmc.evaluation.plan import Task
from gmc.evaluation.report import (
    comparison_table,
    mcnemar_lines,
    mean_table,
    result_tables,
    settings_line,
    warning_lines,
)
from gmc.evaluation.results import Result
from gmc.evaluation.runner import Progress
from gmc.evaluation.scores import mean_score
from gmc.evaluation.session import evaluate_all
from gmc.evaluation.subjects import Candidate


def run_evaluation(
    candidates: Sequence[Candidate],
    reference: Candidate | None,
    tasks: Sequence[Task],
    settings: Settings,
    *,
    directory: Path,
    resume: bool,
    as_json: bool,
) -> None:
    """Evaluate, then show tables, comparisons with the reference, curves over several policies, and where the files lie."""
    everyone = [*([reference] if reference else []), *candidates]
    with ExitStack() as bars:

        def watch(candidate: Candidate, task: Task) -> Progress:
            bars.close()
            bar = bars.enter_context(progress_bar(f"{task.benchmark.name} {candidate.label}", task.responses, "resp"))

            def progress(share: float | None, new: int) -> None:
                bar.advance(new, "" if share is None else f"{100 * share:.1f} % correct")

            return progress

        try:
            found = evaluate_all(everyone, tasks, settings, directory=directory, resume=resume, watch=watch)
        except KeyboardInterrupt:
            bars.close()
            say(f"stopped; what is done is in {directory}: give the same command with --resume to go on")
            raise
    results = [found[candidate][index] for index in range(len(tasks)) for candidate in everyone]
    for table in result_tables(results):
        stderr.print(table)
    means = _means(found)
    comparisons = _comparisons(found, reference, candidates)
    for comparison in comparisons:
        show_comparison(comparison)
    curves = []
    if len(candidates) > 1:
        curves = [write_curve([found[c][index] for c in everyone], directory) for index in range(len(tasks))]
    for line in dict.fromkeys(line for result in results for line in warning_lines(result)):
        say(line)
    for result in found[everyone[-1]]:
        say(settings_line(result))
    for result in results:
        say(f"samples {result.samples_path}, scores {result.scores_path}")
    for points, plot in curves:
        say(f"curve {points}, plot {plot}")
    if as_json:
        print_json(
            {
                "results": [{"file": str(result.scores_path), **result.record} for result in results],
                "means": means,
                "comparisons": [comparison_record(comparison) for comparison in comparisons],
                "curves": [{"points": str(points), "plot": str(plot)} for points, plot in curves],
            }
        )


def show_comparison(comparison: Comparison) -> None:
    """The table of a comparison and the settings in which its sides differ."""
    stderr.print(comparison_table(comparison))
    for line in mcnemar_lines(comparison):
        say(line)
    if comparison.differing_settings:
        say(f"the two sides differ in: {'; '.join(comparison.differing_settings)}")
    runs = {result.record["model"]["run_id"] for result in (comparison.first, comparison.second)}
    if len(runs - {""}) > 1:
        say("intervals are over problems; another training seed may differ by more: gmc eval arms compares over seeds")


def _means(found: dict[Candidate, list[Result]]) -> list[dict[str, Any]]:
    """The mean over benchmarks, for each policy that was evaluated on several."""
    means = []
    for candidate, results in found.items():
        if len(results) < 2:
            continue
        names = [result.record["benchmark"] for result in results]
        values = mean_score(results)
        stderr.print(mean_table(candidate.label, values, names))
        means += [
            {"model": candidate.label, "score": kind, "benchmarks": names, **vars(value)} for kind, value in values.items()
        ]
    return means


def _comparisons(
    found: dict[Candidate, list[Result]], reference: Candidate | None, candidates: Sequence[Candidate]
) -> list[Comparison]:
    if reference is None:
        return []
    return [
        compare(base, result)
        for base, result in zip(found[reference], found[candidates[-1]], strict=True)
        if base.scores_path != result.scores_path
    ]
