"""What both ways to vLLM ask of a request, and the seed that it gets."""

import hashlib
from collections.abc import Sequence

from gmc.config.sampling import Sampling
from gmc.errors import UsageError

LOWEST_TEMPERATURE = 0.01
"""vLLM silently raises a smaller positive temperature to this."""


def check_requests(
    prompts: Sequence[Sequence[int]], group_size: int, sampling: Sampling, seeds: Sequence[int], limit: int, source: str
) -> None:
    """Raise `UsageError` for what vLLM would refuse or change without a word.

    limit: longest prompt and response together, in tokens; source: the model's name.
    """
    if len(seeds) != len(prompts):
        raise UsageError(f"{len(seeds)} seeds for {len(prompts)} prompts: one a prompt is needed.")
    if group_size < 1 or sampling.max_tokens < 1 or sampling.temperature < 0:
        raise UsageError(
            f"group size {group_size}, max tokens {sampling.max_tokens}, temperature {sampling.temperature}: "
            "sizes start at 1, temperature at 0."
        )
    if 0 < sampling.temperature < LOWEST_TEMPERATURE:
        raise UsageError(
            f"temperature {sampling.temperature}: vLLM raises it to {LOWEST_TEMPERATURE} without a word. Use 0, "
            f"{LOWEST_TEMPERATURE} or more, or --engine transformers."
        )
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"prompt {index} is empty: sampling needs at least one token to start from.")
        if len(prompt) + sampling.max_tokens > limit:
            raise UsageError(
                f"prompt {index} has {len(prompt)} tokens; with max_tokens = {sampling.max_tokens} that exceeds the "
                f"context of {limit} tokens of {source} in vLLM. "
                "Lower max_tokens or leave this problem out."
            )


def spread_seed(seed: int) -> int:
    """A seed far from its neighbors': vLLM gives sample i of a group the seed plus i, so groups must not overlap.

    56 bits, which vLLM takes.
    """
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=7).digest(), "big")
