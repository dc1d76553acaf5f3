"""What a person sees of an evaluation, and the one object of `--json`."""

from contextlib import ExitStack
from pathlib import Path

from gmc.cli.eval_verdict import verdict_lines
from gmc.cli.output import print_json, stderr, write_line
from gmc.cli.progress import progress_bar
from gmc.config.settings import RunSettings
from gmc.environments.build import is_binary
from gmc.evaluation.compare import Comparison
from gmc.evaluation.curve import write_curve
from gmc.evaluation.report import (
    comparison_table,
    mcnemar_lines,
    mean_table,
    result_tables,
    settings_line,
    warning_lines,
)
from gmc.evaluation.request import Request
from gmc.evaluation.run import Evaluation, evaluate_run
from gmc.evaluation.runner import Progress
from gmc.evaluation.spec import Task
from gmc.evaluation.subjects import BASE_LABEL, Candidate


def run_evaluation(request: Request, settings: RunSettings, *, as_json: bool) -> None:
    """Evaluate, then show tables, comparisons with the reference, curves over several policies, and where the files lie."""
    limit, origin = settings.eval.max_tokens, settings.origins.get("eval.max_tokens")
    if request.run is None and origin == "model":
        write_line(
            f"at most {limit} tokens an answer, as its context allows; --max-tokens gives the length it was trained with"
        )
    with ExitStack() as bars:

        def watch(candidate: Candidate, task: Task) -> Progress:
            bars.close()
            binary = is_binary(task.spec.reward, task.spec.environment)
            bar = bars.enter_context(progress_bar(f"{task.benchmark.name} {candidate.label}", task.responses, "resp"))

            def progress(share: float | None, new: int) -> None:
                bar.advance(new, "" if share is None else f"{100 * share:.1f} % correct" if binary else f"reward {share:.3f}")

            return progress

        try:
            evaluation = evaluate_run(request, settings, watch=watch)
        except KeyboardInterrupt:
            bars.close()
            write_line("stopped; give the same command with --resume to go on with what is done")
            raise
    curves = _curves(evaluation)
    _show(evaluation)
    for points, plot in curves:
        write_line(f"curve {points}, plot {plot}")
    if request.run is not None and evaluation.reference is not None and evaluation.reference.label == BASE_LABEL:
        for line in verdict_lines(evaluation.comparisons(), request.run):
            write_line(line)
    if as_json:
        files = [{"points": str(points), "plot": str(plot)} for points, plot in curves]
        print_json({**evaluation.record(), "curves": files})


def _show(evaluation: Evaluation) -> None:
    results = evaluation.results
    for table in result_tables(results):
        stderr.print(table)
    for candidate, values in evaluation.means().items():
        names = [result.record["benchmark"] for result in evaluation.found[candidate]]
        binary = all(result.rewarded.binary for result in evaluation.found[candidate])
        stderr.print(mean_table(candidate.label, values, names, binary))
    for comparison in evaluation.comparisons():
        show_comparison(comparison)
    for line in dict.fromkeys(line for result in results for line in warning_lines(result)):
        write_line(line)
    for result in list(evaluation.found.values())[-1]:
        write_line(settings_line(result))
    for result in results:
        write_line(f"samples {result.samples_path}, scores {result.scores_path}")


def _curves(evaluation: Evaluation) -> list[tuple[Path, Path]]:
    """One curve a benchmark where several policies of a run were evaluated: its points and its plot."""
    policies = len(evaluation.found) - (evaluation.reference is not None)
    if policies < 2:
        return []
    return [write_curve(results, evaluation.directory) for results in zip(*evaluation.found.values(), strict=True)]


def show_comparison(comparison: Comparison) -> None:
    """The table of a comparison and the settings in which its sides differ."""
    stderr.print(comparison_table(comparison))
    for line in mcnemar_lines(comparison):
        write_line(line)
    if comparison.differing_settings:
        write_line(f"the two sides differ in: {'; '.join(comparison.differing_settings)}")
    runs = {result.record["model"]["run_id"] for result in (comparison.first, comparison.second)}
    if len(runs - {""}) > 1:
        write_line("intervals are over problems; another training seed may differ by more: gmc eval arms compares over seeds")
