"""From settings to the parts that `gmc rollout` and `gmc train` share."""

import os
from pathlib import Path

import torch

from gmc.config.settings import Settings
from gmc.engines.base import Engine
from gmc.errors import UsageError
from gmc.grading import Grader
from gmc.models import LanguageModel, load_model
from gmc.problems.lengths import drop_long_prompts
from gmc.problems.load import load_problems
from gmc.problems.templates import default_template, get_template
from gmc.ranks import ALONE, Ranks
from gmc.rollouts.maker import RolloutMaker
from gmc.scoring.scorer import Scorer

COMPUTE_DTYPES = {"float32": None, "bfloat16": torch.bfloat16}

SMALL_MODEL_PARAMETERS = 5_000_000
"""Below this a CPU thread waits for the others longer than it computes."""


def build_model(settings: Settings, ranks: Ranks = ALONE) -> LanguageModel:
    """Load the model of the settings onto their device, each rank onto its own GPU. Raises `UsageError` for a device that is
    not there.

    A small model on a CPU gets one thread unless OMP_NUM_THREADS says otherwise: its sums then do not depend on the number of
    cores, and an update of the embedded model takes a third of the time when the cores have other work too.
    """
    device = settings.model.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
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
    model = load_model(settings.model.source, device=device, trust_remote_code=settings.model.trust_remote_code)
    small = sum(parameter.numel() for parameter in model.network.parameters()) < SMALL_MODEL_PARAMETERS
    if small and device == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return model


def compute_dtype(settings: Settings, device: torch.device) -> str:
    """The name of the dtype in force on a device: what "auto" comes to, or what the settings say."""
    if settings.model.compute_dtype != "auto":
        return settings.model.compute_dtype
    return "bfloat16" if device.type == "cuda" else "float32"


def build_scorer(settings: Settings, model: LanguageModel, ranks: Ranks = ALONE) -> Scorer:
    """The one function behind behavior and current log-probs, with the run's plan, dtype and temperature."""
    return Scorer(
        model,
        temperature=settings.rollout.temperature,
        token_budget=settings.train.tokens_per_micro_batch,
        compute_dtype=COMPUTE_DTYPES[compute_dtype(settings, model.device)],
        share_prompts=settings.train.share_prompts,
        checkpointing=settings.train.activation_checkpointing,
        compiled=settings.train.compile,
        ranks=ranks,
    )


def build_engine(settings: Settings, model: LanguageModel, log_file: Path) -> Engine:
    """The rollout engine, holding the model's weights. log_file: where vLLM's own messages go."""
    dtype = COMPUTE_DTYPES[compute_dtype(settings, model.device)]
    if settings.rollout.engine == "vllm":
        from gmc.engines.vllm import VllmEngine

        return VllmEngine(
            model,
            compute_dtype=dtype,
            log_file=log_file,
            tensor_parallel=settings.rollout.tensor_parallel,
            memory_share=settings.rollout.gpu_memory_share,
        )
    from gmc.engines.transformers import TransformersEngine

    return TransformersEngine(model, compute_dtype=dtype)


def build_maker(
    run_id: str, settings: Settings, model: LanguageModel, scorer: Scorer, engine: Engine, ranks: Ranks = ALONE
) -> RolloutMaker:
    """Problems, template, grader, engine and scorer put together. Prompts that leave no room for a response are left out.

    Raises `UsageError` or `DataError` for bad problems.
    """
    problems, longest = settings.problems, settings.rollout.max_tokens
    template = get_template(problems.template or default_template(problems.source))
    problem_set = load_problems(
        problems.source, question_field=problems.question_field, answer_field=problems.answer_field, split=problems.split
    )
    if model.context_tokens is not None and longest is not None:
        problem_set = drop_long_prompts(problem_set, template, model.tokenizer, model.context_tokens - longest)
    return RolloutMaker(
        run_id=run_id,
        settings=settings,
        model=model,
        problem_set=problem_set,
        template=template,
        engine=engine,
        grader=Grader(),
        scorer=scorer if settings.rollout.logprobs == "trainer" else None,
        ranks=ranks,
    )
