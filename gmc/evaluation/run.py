"""One evaluation from what is asked to its results: what `gmc eval` and `gmc.evaluate` do."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.config.settings import RunSettings
from gmc.evaluation.compare import Comparison, compare, comparison_record
from gmc.evaluation.plan import make_task
from gmc.evaluation.request import Request
from gmc.evaluation.results import Result
from gmc.evaluation.scores import mean_score
from gmc.evaluation.session import Watch, evaluate_all
from gmc.evaluation.spec import Task
from gmc.evaluation.statistics import Estimate
from gmc.evaluation.subjects import Candidate, base_candidate, model_candidate, run_candidates
from gmc.problems.benchmarks import SUITES, file_benchmark, select_benchmarks
from gmc.resolving.out_of_memory import explained_out_of_memory

if TYPE_CHECKING:
    import pandas

log = logging.getLogger(__name__)

MODEL_RESULTS = Path("evals")
"""Where results of a model that belongs to no run go."""


@dataclass(frozen=True)
class Evaluation:
    """Finished results. found: each candidate's results, one a benchmark, the reference first where there is one."""

    found: dict[Candidate, list[Result]]
    reference: Candidate | None
    directory: Path

    @property
    def results(self) -> list[Result]:
        """Every result, benchmark by benchmark."""
        return [result for each in zip(*self.found.values(), strict=True) for result in each]

    def means(self) -> dict[Candidate, dict[str, Estimate]]:
        """The mean over benchmarks by score, for each policy that was evaluated on several."""
        return {candidate: mean_score(results) for candidate, results in self.found.items() if len(results) > 1}

    def comparisons(self) -> list[Comparison]:
        """The newest policy against the reference, problem by problem, one a benchmark."""
        if self.reference is None:
            return []
        pairs = zip(self.found[self.reference], list(self.found.values())[-1], strict=True)
        return [compare(base, result) for base, result in pairs if base.scores_path != result.scores_path]

    def record(self) -> dict[str, Any]:
        """As JSON: what `gmc eval --json` prints, curves aside."""
        return {
            "results": [{"file": str(result.scores_path), **result.record} for result in self.results],
            "means": [
                {"model": candidate.label, "score": kind, "benchmarks": _names(self.found[candidate]), **vars(value)}
                for candidate, values in self.means().items()
                for kind, value in values.items()
            ],
            "comparisons": [comparison_record(comparison) for comparison in self.comparisons()],
        }

    def to_frame(self) -> "pandas.DataFrame":
        """One row a score: benchmark, model, version, score, and the estimate with its 95 % interval."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "benchmark": result.record["benchmark"],
                    "model": candidate.label,
                    "version": candidate.version,
                    "score": name,
                    **vars(value),
                }
                for candidate, results in self.found.items()
                for result in results
                for name, value in result.estimates().items()
            ]
        )


def evaluate_run(request: Request, settings: RunSettings, *, watch: Watch) -> Evaluation:
    """Evaluate what is asked for; results lie in RUN/evals or `request.out`, settings in the run. With `request.out` the run
    may be one that this process cannot write into; then nothing is saved there. watch: gives what shows the progress of each.

    Raises `UsageError` or `DataError` in one line for a policy, benchmark or problem file that is not there.
    """
    candidates, reference, directory = _subjects(request, settings)
    everyone = [*([reference] if reference else []), *candidates]
    tasks = _tasks(request, settings)
    if request.run is not None and (request.out is None or os.access(request.run.path, os.W_OK)):  # else it is only read
        request.run.save_settings("eval", settings)
    with explained_out_of_memory(settings, lambda: "evaluation"):
        found = evaluate_all(everyone, tasks, settings, directory=directory, resume=request.resume, watch=watch)
    return Evaluation(found, reference, directory)


def _subjects(request: Request, settings: RunSettings) -> tuple[Sequence[Candidate], Candidate | None, Path]:
    run = request.run
    if run is None:
        return [model_candidate(settings.model.source)], None, request.out or MODEL_RESULTS
    reference = base_candidate(run) if request.base else None
    return run_candidates(run, request.policy), reference, request.out or run.evals


def _tasks(request: Request, settings: RunSettings) -> list[Task]:
    benchmarks = select_benchmarks(settings.eval.benchmarks)
    for name in settings.eval.benchmarks:
        if name in SUITES:
            log.info("%s: %s (%s)", name, ", ".join(SUITES[name].benchmarks), SUITES[name].note)
    if request.problems is not None:
        benchmarks.append(file_benchmark(request.problems, *fields_of(request, settings)))
    return [make_task(benchmark, settings, request) for benchmark in benchmarks]


def fields_of(request: Request, settings: RunSettings) -> tuple[str | None, str | None]:
    """Fields for question and answer of the file asked: as asked, else those that the run trained with, if on the same file."""
    trained_on = settings.problems
    same = request.problems is not None and Path(request.problems).resolve() == Path(trained_on.source).resolve()
    inherited = (trained_on.question_field, trained_on.answer_field) if request.trained and same else ("", "")
    return request.question_field or inherited[0] or None, request.answer_field or inherited[1] or None


def _names(results: Sequence[Result]) -> list[str]:
    return [result.record["benchmark"] for result in results]
