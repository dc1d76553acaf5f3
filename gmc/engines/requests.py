"""What engines ask of a request, and the seed that both ways to vLLM give."""

import hashlib
from collections.abc import Sequence

from gmc.config.sampling import Sampling
from gmc.errors import UsageError

LOWEST_TEMPERATURE = 0.01
"""vLLM silently raises a smaller positive temperature to this."""


def check_requests(
    prompts: Sequence[Sequence[int]], group_size: int, sampling: Sampling, seeds: Sequence[int], limit: int | None, source: str
) -> None:
    """Raise `UsageError` for what cannot be sampled.

    limit: longest prompt and response together, in tokens, None for any; source: the model's name.
    """
    if len(seeds) != len(prompts):
        raise UsageError(f"{len(seeds)} seeds for {len(prompts)} prompts: one a prompt is needed.")
    if group_size < 1 or sampling.max_tokens < 1 or sampling.temperature < 0:
        raise UsageError(
            f"group size {group_size}, max tokens {sampling.max_tokens}, temperature {sampling.temperature}: "
            "sizes start at 1, temperature at 0."
        )
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"prompt {index} is empty: sampling needs at least one token to start from.")
        if limit is not None and len(prompt) + sampling.max_tokens > limit:
            raise UsageError(
                f"prompt {index} has {len(prompt)} tokens; with max_tokens = {sampling.max_tokens} that exceeds the "
                f"context of {limit} tokens of {source}. Lower max_tokens or leave this problem out."
            )


def check_vllm_requests(
    prompts: Sequence[Sequence[int]], group_size: int, sampling: Sampling, seeds: Sequence[int], limit: int, source: str
) -> None:
    """As `check_requests`, also for what vLLM would change without a word."""
    if 0 < sampling.temperature < LOWEST_TEMPERATURE:
        raise UsageError(
            f"temperature {sampling.temperature}: vLLM raises it to {LOWEST_TEMPERATURE} without a word. Use 0, "
            f"{LOWEST_TEMPERATURE} or more, or --engine transformers."
        )
    check_requests(prompts, group_size, sampling, seeds, limit, f"{source} in vLLM")


def spread_seed(seed: int) -> int:
    """A seed far from its neighbors': vLLM gives sample i of a group the seed plus i, so groups must not overlap.

    56 bits, which vLLM takes.
    """
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=7).digest(), "big")
