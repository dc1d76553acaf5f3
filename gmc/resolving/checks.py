"""What can be refused before anything is created: a sampling value or a delay that cannot be trained with."""

from gmc.config.settings import RunSettings
from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.engines.registry import load_engine
from gmc.errors import UsageError
from gmc.problems.benchmarks import BENCHMARKS, SUITES, Benchmark, file_benchmark

ARITHMETIC = "arithmetic"


def check_sampling(settings: RunSettings) -> None:
    """Raise `UsageError` for an engine that is not there, and for sampling values that training cannot use."""
    settings.rollout.sampling(())
    load_engine(settings.rollout.engine)


def heldout_benchmark(settings: RunSettings) -> Benchmark:
    """What `train.eval_every` scores. Raises `UsageError` where nobody says it and training does not ask the arithmetic."""
    asked, problems = settings.train.eval_problems, settings.problems
    if asked in SUITES:
        members = ", ".join(SUITES[asked].benchmarks)
        raise UsageError(f"train.eval_problems = {asked}: is a suite; name one of {members}")
    if asked in BENCHMARKS:
        return BENCHMARKS[asked]
    if asked:
        return file_benchmark(asked, problems.question_field or None, problems.answer_field or None)
    if problems.source != ARITHMETIC:
        raise UsageError(
            f"train.eval_every = {settings.train.eval_every}: say which problems are scored, such as "
            f"--set train.eval_problems=held_out.jsonl; {problems.source} is what training asks"
        )
    return BENCHMARKS[ARITHMETIC]


def check_settings(settings: RunSettings) -> None:
    """Raise `UsageError` for settings that no run could train with. What depends on shards is checked when the run is open."""
    check_sampling(settings)
    if settings.train.eval_every:
        heldout_benchmark(settings)
    rollout = settings.rollout
    context = DelayContext(rollout.prompts, rollout.group_size, settings.seed, settings.train.updates)
    delay = delay_class(settings.delay)
    if settings.train.start_version and not delay.needs_existing_shards:
        raise UsageError(
            f"--start-version {settings.train.start_version}: only --delay shards trains on another's versions; leave it out"
        )
    delay.check(arguments_of(settings.delay), context)
