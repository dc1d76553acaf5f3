"""From settings to the parts that `gmc rollout` and `gmc train` share."""

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from gmc.config.settings import RunSettings
from gmc.delays.base import DelayModel, ShardContents
from gmc.delays.registry import parse_delay
from gmc.engines.base import Engine
from gmc.engines.registry import load_engine
from gmc.environments.build import build_environment
from gmc.environments.limits import close_environment
from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.registry import build_estimator
from gmc.models import LanguageModel, load_model, with_adapter
from gmc.parameters.base import Parameters
from gmc.parameters.whole import Whole
from gmc.problems.base import ProblemSet
from gmc.problems.lengths import drop_long_prompts
from gmc.problems.load import load_problems
from gmc.problems.prompt_notes import prompt_notes
from gmc.problems.templates import Template, get_template
from gmc.ranks import ALONE, Ranks
from gmc.rewards.base import Reward
from gmc.rewards.build import build_reward
from gmc.rewards.combined import CombinedReward
from gmc.rewards.function import Form
from gmc.rollouts.asked import first_question
from gmc.rollouts.maker import RolloutMaker
from gmc.scoring.scorer import Scorer

log = logging.getLogger(__name__)

COMPUTE_DTYPES = {"float32": None, "bfloat16": torch.bfloat16}

SMALL_MODEL_PARAMETERS = 5_000_000
"""Below this a CPU thread waits for the others longer than it computes."""


def build_model(settings: RunSettings, ranks: Ranks = ALONE) -> LanguageModel:
    """Load the model of the settings onto their device, each rank onto its own GPU, or onto the CPU where it is to be sharded.
    Raises `UsageError` for a device that is not there.

    A small model on a CPU gets one thread unless OMP_NUM_THREADS says otherwise: its sums then do not depend on the number of
    cores, and an update of the embedded model takes a third of the time when the cores have other work too.
    """
    device = settings.model.device
    try:
        known = torch.device(device).type != "meta"
    except RuntimeError:
        known = False
    if not known:
        raise UsageError(f"model.device = {device}: no such device; use auto, cpu, cuda or cuda:1")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"model.device = {device}: no CUDA device is available; use cpu or auto")
    if ranks.count > 1 and device.startswith("cuda"):
        if device != "cuda":
            raise UsageError(f"model.device = {device}: {ranks.count} ranks cannot share one GPU; use cuda or auto")
        device = f"cuda:{ranks.local}"
        torch.cuda.set_device(device)
    place = "cpu" if settings.train.sharding == "full" else device
    model = load_model(settings.model.source, device=place, trust_remote_code=settings.model.trust_remote_code)
    if settings.model.lora.rank:
        model = with_adapter(model, rank=settings.model.lora.rank, alpha=settings.model.lora.alpha)
    for note in model.notes:
        log.warning("%s: %s", model.source, note)
    small = sum(parameter.numel() for parameter in model.network.parameters()) < SMALL_MODEL_PARAMETERS
    if small and device == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return model


def build_delay(settings: RunSettings, updates: int, shards: Sequence[ShardContents] = ()) -> DelayModel:
    """The delay model of a run of so many updates. shards: what lies there, for a delay that needs it."""
    rollout = settings.rollout
    return parse_delay(
        settings.delay,
        prompts=rollout.prompts,
        group_size=rollout.group_size,
        seed=settings.seed,
        updates=updates,
        shards=shards,
    )


def build_parameters(settings: RunSettings, model: LanguageModel, ranks: Ranks) -> Parameters:
    """Who holds the model's parameters: this process a copy, or a part on its device. Raises `UsageError` for a model that
    cannot be sharded."""
    if settings.train.sharding == "none":
        return Whole(model, ranks)
    if model.adapter is not None:
        raise UsageError(f"train.sharding = full: {model.source} is an adapter; go on with --set train.sharding=none")
    from gmc.parameters.sharded import Sharded  # imports much of torch.distributed, for several processes alone

    device = f"cuda:{ranks.local}" if settings.model.device.startswith("cuda") else settings.model.device
    return Sharded(model, ranks, device, COMPUTE_DTYPES[settings.model.compute_dtype])


def build_rule(settings: RunSettings) -> Estimator:
    """The correction rule, with its settings."""
    rest = {key: value for key, value in settings.estimator.items() if key != "name"}
    return build_estimator(settings.estimator["name"], rest)


def build_rewards(settings: RunSettings, parts: Sequence[str] | None = None, form: Form | None = None) -> CombinedReward:
    """What the run rewards. parts, form: in place of those that are set. Raises `UsageError` in one line."""
    reward = settings.reward
    return build_reward(
        reward.parts if parts is None else parts,
        form=form or reward.form,
        seconds=reward.seconds,
        on_error=reward.on_error,
    )


def build_problems(settings: RunSettings, reward: Reward | None) -> ProblemSet:
    """The problems that training asks, as the reward wants them; all of them without one. Raises `UsageError` or `DataError`
    for bad ones."""
    problems = settings.problems
    return load_problems(
        problems.source,
        question_field=problems.question_field or None,
        answer_field=problems.answer_field or None,
        split=problems.split or None,
        prepare=reward.prepare if reward else lambda problem: problem,
        needs_answer=reward is not None and reward.needs_answer,
    )


def build_scorer(settings: RunSettings, model: LanguageModel, parameters: Parameters | None = None) -> Scorer:
    """The one function behind behavior and current log-probs, with the run's plan, dtype and temperature.

    parameters: who holds the model's, this process alone by default.
    """
    parameters = Whole(model) if parameters is None else parameters
    with parameters.whole():  # the scorer tries the network
        return Scorer(
            model,
            temperature=settings.rollout.temperature,
            token_budget=settings.train.tokens_per_micro_batch,
            compute_dtype=COMPUTE_DTYPES[settings.model.compute_dtype],
            share_prompts=settings.train.share_prompts,
            checkpointing=settings.train.activation_checkpointing,
            compiled=settings.train.compile,
            parameters=parameters,
        )


def build_engine(settings: RunSettings, model: LanguageModel, log_file: Path) -> Engine:
    """The rollout engine, holding the model's weights. log_file: where its own messages go."""
    engine = load_engine(settings.rollout.engine)
    if not engine.seedable:
        log.warning("engine %s cannot be seeded, so a resumed run samples other responses", engine.name)
    if model.adapter is not None and not (engine.shares_weights or engine.takes_adapters):
        raise UsageError(
            f"rollout.engine = {engine.name}: it takes whole models, and {model.source} has an adapter; "
            "use --engine transformers or vllm"
        )
    dtype = COMPUTE_DTYPES[settings.model.compute_dtype]
    return engine.build(settings, model, compute_dtype=dtype, log_file=log_file)


def log_prompt_notes(template: Template, model: LanguageModel) -> None:
    """Warn of what the tokenizer does to prompts that nobody asked for. Raises `UsageError` for a broken chat template."""
    for note in prompt_notes(template, model.tokenizer, model.end_token_ids):
        log.warning("%s: %s", model.source, note)


def build_maker(
    run_id: str, settings: RunSettings, model: LanguageModel, scorer: Scorer, engine: Engine, initial_hash: str = ""
) -> RolloutMaker:
    """Problems, template, reward, engine and scorer put together. Prompts that leave no room for a response are left out.

    initial_hash: of the weights of version 0, where they are known; the ranks of the scorer's parameters make batches together.
    Whoever has it made closes it.

    Raises `UsageError` or `DataError` for bad problems, `GmcError` for functions that cannot be imported.
    """
    reward = build_rewards(settings)
    environment = build_environment(settings.rollout.environment, seconds=settings.rollout.environment_seconds)
    template, problem_set = get_template(settings.problems.template), build_problems(settings, reward)
    log_prompt_notes(template, model)
    with ExitStack() as failing:
        failing.callback(close_environment, environment)
        first_question(environment, problem_set.problems[0])
        if model.context_tokens is not None:
            room = model.context_tokens - settings.rollout.max_tokens
            problem_set = drop_long_prompts(
                problem_set, template, model.tokenizer, room, lambda problem: first_question(environment, problem)
            )
        failing.callback(reward.close)
        reward.start()  # last: what could be refused without a process has been
        failing.pop_all()
    return RolloutMaker(
        run_id=run_id,
        settings=settings,
        model=model,
        problem_set=problem_set,
        template=template,
        engine=engine,
        reward=reward,
        environment=environment,
        scorer=scorer if settings.rollout.logprobs == "trainer" else None,
        parameters=scorer.parameters,
        initial_hash=initial_hash,
    )
