"""The one interface between gmc and whatever samples tokens.

Token ids go in and token ids come out: decoding and encoding again changes tokens, so text is only for people.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gmc.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """Every sampling value, passed explicitly so that no model's generation_config can change one.

    temperature: 0 is greedy decoding (evaluation only). top_k 0, top_p 1 and min_p 0 mean "off".
    stop: strings that end a response; their tokens stay in the response.
    """

    temperature: float = 1.0
    max_tokens: int = 64
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()

    def require_training_safe(self) -> None:
        """Refuse what makes the importance ratio mean something else than a change of policy.

        Top-p, top-k, min-p and repetition penalties renormalize the distribution, so the ratio is multiplied by the kept
        probability mass. Raises `UsageError` naming the setting.
        """
        truncating = {
            "top_p": self.top_p != 1.0,
            "top_k": self.top_k != 0,
            "min_p": self.min_p != 0.0,
            "repetition_penalty": self.repetition_penalty != 1.0,
        }
        for name, used in truncating.items():
            if used:
                raise UsageError(
                    f"rollout.{name} = {getattr(self, name)}: training rollouts are sampled by temperature alone, because "
                    f"{name} multiplies every importance ratio by the kept probability mass. Remove it (it is allowed in eval)."
                )
        if self.temperature <= 0:
            raise UsageError(f"rollout.temperature = {self.temperature}: training rollouts need a temperature above 0.")


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
    """Samples groups of responses. One engine holds one policy at a time."""

    name: str
    version: str

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
