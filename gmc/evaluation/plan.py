"""From settings to what is evaluated: benchmarks with their problems, and a spec for each."""

from dataclasses import dataclass, replace
from pathlib import Path

from gmc.config.settings import RunSettings
from gmc.errors import DataError
from gmc.evaluation.spec import EvalSpec
from gmc.problems.base import ProblemSet
from gmc.problems.benchmarks import Benchmark, load_benchmark
from gmc.problems.checks import find_overlap
from gmc.resolving.build import build_problems

ARITHMETIC = "arithmetic"


@dataclass(frozen=True)
class Task:
    """One benchmark, ready to be run on any policy. fit_length: see `gmc.evaluation.runner.evaluate`."""

    benchmark: Benchmark
    problems: ProblemSet
    spec: EvalSpec
    fit_length: bool

    @property
    def responses(self) -> int:
        """Responses that one policy has to give."""
        return len(self.problems) * (self.spec.samples + self.spec.greedy)


def make_task(
    benchmark: Benchmark,
    settings: RunSettings,
    *,
    data_directory: Path | None,
    template_id: str | None,
    trained_on: RunSettings | None,
    strict: bool,
    batch_sequences: int,
    fit_length: bool,
) -> Task:
    """Load a benchmark and settle how it is asked.

    trained_on: settings of the run that the policy comes from, None for a model alone. They give the prompt template (a policy
    is asked as it was trained) and the problems that the benchmark is checked against.
    """
    evaluation = settings.eval
    problems = load_benchmark(benchmark, data_directory)
    if trained_on is not None:
        problems = replace(problems, notes=(*problems.notes, *overlap_notes(trained_on, problems)))
    if 0 < evaluation.limit < len(problems):
        note = f"only the first {evaluation.limit} of {len(problems)} problems"
        problems = problems.keep(problems.problems[: evaluation.limit], note)
        benchmark = replace(benchmark, content_hash=None)
    spec = EvalSpec(
        benchmark=benchmark.name,
        template_id=template_id or choose_template(benchmark, trained_on),
        samples=evaluation.samples_of(benchmark.name),
        greedy=evaluation.greedy,
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        max_tokens=evaluation.max_tokens,
        pass_k=tuple(evaluation.pass_k),
        seed=evaluation.seed,
        strict=strict,
        batch_sequences=batch_sequences,
    )
    return Task(benchmark, problems, spec, fit_length)


def choose_template(benchmark: Benchmark, trained_on: RunSettings | None) -> str:
    """The template a policy was trained with, unless only one of training and benchmark is the built-in arithmetic."""
    if trained_on is None:
        return benchmark.template_id
    trained = trained_on.problems.template
    both = {trained, benchmark.template_id}
    return benchmark.template_id if len(both) == 2 and "arithmetic-v1" in both else trained


def overlap_notes(trained_on: RunSettings, problems: ProblemSet) -> list[str]:
    """How many evaluation problems the training problems hold as well (the arithmetic splits are disjoint by construction)."""
    training = trained_on.problems
    if training.source.partition(":")[0] == ARITHMETIC:
        return []
    try:
        trained = build_problems(training)
    except DataError as error:
        return [f"overlap with the training problems not checked: {error}"]
    shared = find_overlap(trained, problems)
    if not shared:
        return []
    return [f"{len(shared)} of {len(problems)} problems are also training problems ({training.source}), such as {shared[0]}"]
