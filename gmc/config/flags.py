"""Which setting stands behind each flag of the commands, and behind each keyword of the library."""

import os
from collections.abc import Mapping
from typing import Any

from gmc.errors import UsageError, did_you_mean

SETTING_OF = {
    "estimator": "estimator.name",
    "delay": "delay",
    "updates": "train.updates",
    "start_version": "train.start_version",
    "learning_rate": "optimizer.learning_rate",
    "eval_every": "train.eval_every",
    "model": "model.source",
    "problems": "problems.source",
    "question_field": "problems.question_field",
    "answer_field": "problems.answer_field",
    "reward": "reward.parts",
    "environment": "rollout.environment",
    "batches": "rollout.batches",
    "prompts": "rollout.prompts",
    "group_size": "rollout.group_size",
    "engine": "rollout.engine",
    "temperature": "rollout.temperature",
    "max_tokens": "rollout.max_tokens",
    "logprobs": "rollout.logprobs",
    "seed": "seed",
}
"""The setting behind each flag of `gmc rollout` and `gmc train`, by parameter name."""

EVAL_SETTING_OF = {
    "bench": "eval.benchmarks",
    "limit": "eval.limit",
    "model": "model.source",
    "n": "eval.samples",
    "greedy": "eval.greedy",
    "pass_k": "eval.pass_k",
    "temperature": "eval.temperature",
    "top_p": "eval.top_p",
    "max_tokens": "eval.max_tokens",
    "seed": "eval.seed",
    "reward": "reward.parts",
    "environment": "rollout.environment",
    "engine": "rollout.engine",
}
"""The same for `gmc eval`, whose sampling is its own."""


def flag_of(name: str) -> str:
    """A parameter as it is typed: "max_tokens" is "--max-tokens"."""
    return f"--{name.replace('_', '-')}"


def flag_names(table: Mapping[str, str] = SETTING_OF) -> dict[str, str]:
    """The flag of each setting that has one."""
    return {key: flag_of(name) for name, key in table.items()}


def settings_of_flags(flags: Mapping[str, Any], table: Mapping[str, str] = SETTING_OF) -> dict[str, Any]:
    """Flags by their settings' dotted keys, paths as text. Raises `UsageError` for a name that is no flag, with the nearest."""
    for name in flags:
        if name not in table:
            hint = did_you_mean(name, table) or f"; there are {', '.join(table)}."
            raise UsageError(f"{name}: no such flag{hint} Any other setting goes into settings={{'section.name': value}}")
    texts = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in flags.items()}
    return {table[name]: value for name, value in texts.items()}
