"""What can be refused before anything is created: a sampling value or a delay that cannot be trained with."""

import os

from gmc.config.settings import RunSettings
from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.engines.registry import load_engine, require_engine
from gmc.environments.build import build_environment
from gmc.errors import UsageError
from gmc.problems.benchmarks import BENCHMARKS, SUITES, Benchmark, file_benchmark
from gmc.ranks import coming_ranks

ARITHMETIC = "arithmetic"
RESPONSE_BYTES, TOKEN_BYTES = 1000, 8
"""The least that a response and each of its tokens (an id and a log-probability) take in memory."""


def check_sampling(settings: RunSettings) -> None:
    """Raise `UsageError` for an engine that is not there, and for sampling values that training cannot use."""
    settings.rollout.sampling(())
    _check_size(settings)
    require_engine(settings.rollout.engine)
    _check_transfer(settings)


def _check_transfer(settings: RunSettings) -> None:
    engine, transfer = settings.rollout.engine, settings.rollout.weight_transfer
    if delay_class(settings.delay).live:
        if transfer not in load_engine(engine).follower_transfers:
            raise UsageError(
                f"rollout.weight_transfer = {transfer}: a follower with engine {engine} reads policies from the folder; set it "
                "to folder, or use --engine vllm"
            )
    elif transfer not in load_engine(engine).weight_transfers:
        raise UsageError(
            f"rollout.weight_transfer = {transfer}: engine {engine} takes weights within its own process, where nothing has to "
            "be sent; leave it out, or use --engine vllm-server"
        )


def sends_to_followers(settings: RunSettings) -> bool:
    """Whether a live run's trainer sends policies to its followers, besides publishing them.

    Raises `UsageError` where this process, trainer or follower, cannot take part.
    """
    engine, transfer = load_engine(settings.rollout.engine), settings.rollout.weight_transfer
    if not delay_class(settings.delay).live or transfer == "folder" or transfer in engine.weight_transfers:
        return False
    from gmc.engines.nccl import require_nccl

    require_nccl("trainer and followers")
    if not settings.model.device.startswith("cuda"):
        raise UsageError(
            f"rollout.weight_transfer = {transfer} with model.device = {settings.model.device}: NCCL needs a GPU in trainer "
            "and followers; use folder"
        )
    return True


def _check_size(settings: RunSettings) -> None:
    """Refuse a batch whose responses alone, with their ids and log-probabilities, are more than this machine's memory."""
    rollout = settings.rollout
    responses = rollout.prompts * rollout.group_size
    needed = responses * (RESPONSE_BYTES + rollout.max_tokens * TOKEN_BYTES)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise UsageError(
            f"rollout.prompts = {rollout.prompts:,} × rollout.group_size = {rollout.group_size:,} × rollout.max_tokens = "
            f"{rollout.max_tokens:,}: a batch takes up to {needed / 2**30:,.0f} GiB, and this machine has "
            f"{memory / 2**30:,.0f} GiB of memory; lower one of them"
        )


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
    if settings.train.sharding == "full":
        _check_sharding(settings)
    rollout = settings.rollout
    context = DelayContext(rollout.prompts, rollout.group_size, settings.seed, settings.train.updates)
    delay = delay_class(settings.delay)
    if settings.train.start_version >= 0 and not delay.needs_existing_shards:
        raise UsageError(
            f"--start-version {settings.train.start_version}: only --delay shards trains on another's versions; leave it out"
        )
    delay.check(arguments_of(settings.delay), context)
    if delay.in_flight:
        check_in_flight(settings, f"--delay {settings.delay}")
    if delay.live and rollout.devices:
        raise UsageError(
            f"--live with rollout.devices = {rollout.devices}: followers sample, each where it runs; leave the setting "
            "out, and choose a follower's own with gmc rollout --follow --set model.device=…"
        )
    if delay.live and settings.live.in_flight:
        _check_whole_batches(settings, "live.in_flight")


def check_in_flight(settings: RunSettings, what: str) -> None:
    """Raise `UsageError` for what cannot sample responses of several versions. what: asks for them."""
    engine = settings.rollout.engine
    if not load_engine(engine).extends:
        raise UsageError(f"{what}: engine {engine} cannot go on with a response under new weights; use --engine transformers")
    if settings.rollout.devices and not delay_class(settings.delay).live:
        raise UsageError(f"{what}: it samples where training does, between updates; leave rollout.devices out")
    _check_whole_batches(settings, what)


def _check_whole_batches(settings: RunSettings, what: str) -> None:
    if settings.rollout.resample_equal:
        raise UsageError(
            f"{what}: rollout.resample_equal asks further prompts when a batch is whole, and here later versions would begin "
            "them; set it to 0"
        )
    if build_environment(settings.rollout.environment).replies:
        raise UsageError(
            f"{what}: --environment {settings.rollout.environment} answers whole turns, and a response in flight may pause "
            "within one; use --environment single, or another delay"
        )


def unshardable(settings: RunSettings) -> dict[str, bool]:
    """What does not go together with `train.sharding = full`, in words, and whether it is set."""
    return {
        f"model.lora.rank = {settings.model.lora.rank}": settings.model.lora.rank > 0,
        "train.compile = true": settings.train.compile,
        f"optimizer.name = {settings.optimizer.name}": settings.optimizer.name != "adamw",
        f"--delay {settings.delay}": delay_class(settings.delay).in_flight,
    }


def _check_sharding(settings: RunSettings) -> None:
    for setting, there in unshardable(settings).items():
        if there:
            raise UsageError(f"train.sharding = full with {setting}: they do not work together; leave one of them out")
    if coming_ranks() == 1:
        raise UsageError(
            "train.sharding = full: parts for several processes, and this is one; start torchrun --nproc-per-node N -m -- gmc "
            "train …, or go on with --set train.sharding=none"
        )
