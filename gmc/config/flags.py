"""Which setting stands behind each flag of the commands, and behind each keyword of the library."""

import difflib
from collections.abc import Mapping
from typing import Any

from gmc.errors import UsageError

SETTING_OF = {
    "estimator": "estimator.name",
    "delay": "delay",
    "updates": "train.updates",
    "learning_rate": "optimizer.learning_rate",
    "model": "model.source",
    "problems": "problems.source",
    "question_field": "problems.question_field",
    "answer_field": "problems.answer_field",
    "batches": "rollout.batches",
    "prompts": "rollout.prompts",
    "group_size": "rollout.group_size",
    "engine": "rollout.engine",
    "temperature": "rollout.temperature",
    "max_tokens": "rollout.max_tokens",
    "logprobs": "rollout.logprobs",
    "seed": "seed",
}
"""The setting behind each flag, by parameter name."""


def settings_of_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags by their settings' dotted keys. Raises `UsageError` for a name that is no flag, with the nearest one."""
    for name in flags:
        if name not in SETTING_OF:
            near = difflib.get_close_matches(name, SETTING_OF, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTING_OF)}"
            raise UsageError(f"{name}: no such flag; {hint} Any other setting goes into settings={{'section.name': value}}")
    return {SETTING_OF[name]: value for name, value in flags.items()}
