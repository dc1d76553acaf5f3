"""From settings to what is evaluated: benchmarks with their problems, and a spec for each."""

from dataclasses import replace

from gmc.config.fields import EMBEDDED
from gmc.config.settings import RunSettings
from gmc.environments.build import build_environment
from gmc.errors import DataError, UsageError
from gmc.evaluation.request import Request
from gmc.evaluation.spec import EvalSpec, Task
from gmc.problems.base import ProblemSet
from gmc.problems.benchmarks import Benchmark, load_benchmark
from gmc.problems.checks import find_overlap
from gmc.problems.templates import default_template
from gmc.resolving.build import build_problems, build_rewards
from gmc.rewards.math import Math
from gmc.rewards.specs import parse_reward, with_keywords

ARITHMETIC = "arithmetic"


def make_task(benchmark: Benchmark, settings: RunSettings, request: Request) -> Task:
    """Load a benchmark and resolve how it is asked.

    The settings of a run that the policy was trained in give the prompt template (a policy is asked as it was trained) and the
    problems that the benchmark is checked against.
    """
    trained_on = settings if request.trained else None
    evaluation = settings.eval
    parts = _parts(settings, request)
    with build_rewards(settings, parts) as reward:
        problems = load_benchmark(benchmark, request.data_directory, prepare=reward.prepare, needs_answer=reward.needs_answer)
    if trained_on is not None:
        problems = replace(problems, notes=(*problems.notes, *overlap_notes(trained_on, problems)))
    if 0 < evaluation.limit < len(problems):
        note = f"only the first {evaluation.limit} of {len(problems)} problems"
        problems = problems.keep(problems.problems[: evaluation.limit], note)
        benchmark = replace(benchmark, content_hash=None)
    spec = EvalSpec(
        benchmark=benchmark.name,
        template_id=request.template or choose_template(benchmark, settings, trained=request.trained),
        samples=evaluation.samples_of(benchmark.name),
        greedy=evaluation.greedy,
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        max_tokens=evaluation.max_tokens,
        pass_k=tuple(evaluation.pass_k),
        seed=evaluation.seed,
        reward=parts,
        reward_code=(*settings.reward.code, *settings.rollout.environment_code),
        environment=settings.rollout.environment,
        batch_sequences=request.batch_sequences,
    )
    # Nobody asked for a length where it comes from the model.
    environment = build_environment(spec.environment, seconds=settings.rollout.environment_seconds)
    return Task(benchmark, problems, spec, environment, fit_length=settings.origins.get("eval.max_tokens") == "model")


def _parts(settings: RunSettings, request: Request) -> tuple[str, ...]:
    """What is rewarded; with --last-number the reward math is not strict."""
    specs = [parse_reward(text) for text in settings.reward.parts]
    if request.last_number:
        specs = [with_keywords(spec, {"strict": False}) if spec.target == Math.name else spec for spec in specs]
    return tuple(map(str, specs))


def choose_template(benchmark: Benchmark, settings: RunSettings, *, trained: bool) -> str:
    """The template a policy was trained with, unless only one of training and benchmark is the built-in arithmetic.

    trained: whether the settings are those of a run that trained it. The embedded model is asked in the only way that it knows.
    """
    if settings.model.source == EMBEDDED:
        return settings.problems.template if trained else default_template("", EMBEDDED)
    if not trained:
        return benchmark.template_id
    own = settings.problems.template
    both = {own, benchmark.template_id}
    return benchmark.template_id if len(both) == 2 and "arithmetic-v1" in both else own


def overlap_notes(trained_on: RunSettings, problems: ProblemSet) -> list[str]:
    """How many evaluation problems the training problems hold as well (the arithmetic splits are disjoint by construction)."""
    training = trained_on.problems
    if training.source.partition(":")[0] == ARITHMETIC:
        return []
    try:
        trained = build_problems(trained_on, None)
    except (DataError, UsageError) as error:
        return [f"overlap with the training problems not checked: {error}"]
    shared = find_overlap(trained, problems)
    if not shared:
        return []
    return [f"{len(shared)} of {len(problems)} problems are also training problems ({training.source}), such as {shared[0]}"]
