"""Evaluating several policies on several benchmarks, one loaded model at a time."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from gmc.config.layers import RUN
from gmc.config.settings import RunSettings
from gmc.environments.limits import close_environment
from gmc.evaluation.results import Result
from gmc.evaluation.runner import Progress, ask, evaluate, with_room
from gmc.evaluation.spec import Task
from gmc.evaluation.subjects import Candidate
from gmc.problems.templates import get_template
from gmc.resolving.build import build_engine, build_model, build_rewards, log_prompt_notes
from gmc.rewards.function import Form

Watch = Callable[[Candidate, Task], Progress]
"""Called before each evaluation; gives what shows its progress."""


def evaluate_all(
    candidates: Sequence[Candidate],
    tasks: Sequence[Task],
    settings: RunSettings,
    *,
    directory: Path,
    resume: bool,
    watch: Watch,
) -> dict[Candidate, list[Result]]:
    """Each candidate's results, one a task, in order."""
    with ExitStack() as resources:
        for task in tasks:
            resources.callback(close_environment, task.environment)
        return {
            candidate: _evaluate_one(candidate, tasks, settings, directory=directory, resume=resume, watch=watch)
            for candidate in candidates
        }


def _evaluate_one(
    candidate: Candidate, tasks: Sequence[Task], settings: RunSettings, *, directory: Path, resume: bool, watch: Watch
) -> list[Result]:
    whole = settings.model.lora.model_copy(update={"rank": 0})  # a policy brings the adapter that it was trained with
    changes = {"source": candidate.source, "lora": whole}
    own = settings.model_copy(update={"model": settings.model.model_copy(update=changes)})
    candidate.require_intact()
    model = build_model(own)
    subject = candidate.subject(model, own.model.compute_dtype)
    for template_id in {task.spec.template_id: None for task in tasks}:
        log_prompt_notes(get_template(template_id), model)
    for task in tasks:  # a prompt that does not fit is refused before hours of sampling on another benchmark
        with_room(task, ask(model.tokenizer, task), subject.context_tokens)
    results = []
    with closing(build_engine(own, model, directory / "vllm.log")) as engine:
        for task in tasks:
            with build_rewards(settings, task.spec.reward, form=form_of(settings, task)) as reward:
                reward.start()
                result = evaluate(
                    engine,
                    model.tokenizer,
                    task,
                    subject=subject,
                    reward=reward,
                    directory=directory,
                    resume=resume,
                    progress=watch(candidate, task),
                )
            results.append(result)
    return results


def form_of(settings: RunSettings, task: Task) -> Form:
    """What functions get: as set, else as this benchmark's own template asks."""
    if settings.origins["reward.form"].removeprefix(RUN) != "template":
        return settings.reward.form
    return "messages" if get_template(task.spec.template_id).chat else "text"
