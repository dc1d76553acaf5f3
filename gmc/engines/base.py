"""The one interface between gmc and whatever samples tokens.

Token ids go in and token ids come out: decoding and encoding again changes tokens, so text is only for people.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gmc.config.sampling import Sampling

__all__ = ["Completion", "Engine", "Sampling"]


@dataclass(frozen=True)
class Completion:
    """One sampled response.

    token_ids: every sampled token, the end token and those completing a stop string included.
    logprobs: the engine's own log-probability of each sampled token, for the distribution really sampled from
        (temperature included); same length as token_ids; each <= 0.
    finish_reason: "stop" (an end token or stop string) or "length".
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str


class Engine(Protocol):
    """Samples groups of responses. One engine holds one policy at a time.

    shares_weights: whether it samples with the trainer's own tensors; if not, each new policy goes through `load_weights`.
    """

    name: str
    version: str
    shares_weights: bool

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """Sample `group_size` responses to each prompt.

        The result for a prompt depends on (weights, prompt, sampling, its seed) up to rounding of batched arithmetic; for
        the same call on the same machine it is the same, byte for byte. `progress` is called with the number of newly
        finished responses. Raises `UsageError` for a prompt that leaves no room in the model's context.
        """
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take these weights (Hugging Face parameter names, float32) from now on. Caches of older weights are dropped."""
        ...

    def close(self) -> None:
        """Free what the engine holds; ends subprocesses. May be called twice."""
        ...
