"""The one interface between gmc and whatever samples tokens.

Token ids go in and token ids come out: decoding and encoding again changes tokens, so text is only for people.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from gmc.config.sampling import Sampling
from gmc.config.settings import RunSettings

if TYPE_CHECKING:  # to know that an engine is there takes neither torch nor transformers
    import torch

    from gmc.models import LanguageModel

__all__ = ["Completion", "Engine", "Ongoing", "Partial", "Responder", "Sampling"]


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

    def cut(self, tokens: int) -> "Completion":
        """The completion as if no more than so many tokens had been allowed."""
        if len(self.token_ids) <= tokens:
            return self
        return Completion(self.token_ids[:tokens], self.logprobs[:tokens], "length")


@dataclass
class Partial:
    """A response so far. prompt: token ids; seed, sample: which noise is its own, as in `Engine.generate`; token_ids, logprobs:
    what was sampled, as in a `Completion`; finish_reason: "" while it goes on."""

    prompt: Sequence[int]
    seed: int
    sample: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""

    @property
    def prefix(self) -> list[int]:
        """What the next token is sampled after."""
        return [*self.prompt, *self.token_ids]


class Ongoing(Protocol):
    """Unfinished responses in one decoding batch, that may pause."""

    def run(self, pause: Callable[[], bool], progress: Callable[[int], None] | None = None) -> bool:
        """Sample until all are finished; False when `pause`, asked after every token, said so before."""
        ...

    def renew(self, *, keep_cache: bool) -> None:
        """The engine holds other weights now. keep_cache: whether what was read under the old ones stays, so that only new
        tokens are read under the new ones; else all is read again."""
        ...


class Responder(ABC):
    """Samples groups of responses, with whatever policy it holds: an engine, or what stands in for one."""

    context_tokens: int | None = None
    """Longest prompt and response together, in tokens; None where the engine sets no limit."""

    @abstractmethod
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

    def resume(
        self, contexts: Sequence[Sequence[int]], *, limits: Sequence[int], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion]:
        """One further turn of each of these texts: at most `limits[i]` tokens behind `contexts[i]`, drawn by `seeds[i]`.

        `sampling.max_tokens` does not count, and a context has room for its limit. The default samples all with the largest
        limit that their contexts leave room for and cuts each at its own, which draws from the same distribution: what comes
        before a cut does not depend on it. An engine that can limit each text by itself, or that holds the contexts already,
        does better to say so here.
        """
        completions: dict[int, Completion] = {}
        while left := [index for index in range(len(contexts)) if index not in completions]:
            tokens = max(limits[index] for index in left)
            room = self.context_tokens
            # The text of the largest limit has room for it, so there is always one.
            together = [index for index in left if room is None or len(contexts[index]) + tokens <= room]
            groups = self.generate(
                [contexts[index] for index in together],
                group_size=1,
                sampling=replace(sampling, max_tokens=tokens),
                seeds=[seeds[index] for index in together],
            )
            for index, (completion,) in zip(together, groups, strict=True):
                completions[index] = completion.cut(limits[index])
        return [completions[index] for index in range(len(contexts))]


class Engine(Responder):
    """Samples groups of responses. One engine holds one policy at a time.

    An engine is a plug-in: a class that a distribution registers under its `name` in the entry-point group `gmc.engines`.
    name: as `rollout.engine`; summary: one line; version: of what samples. shares_weights: whether it samples with the
    trainer's own tensors; if not, each new policy goes through `load_weights`. extends: whether it has `extend` and `flight`.
    takes_adapters: whether `load_weights` takes those of a model that has an adapter. weight_transfers: the values of
    `rollout.weight_transfer` that it knows; follower_transfers: those that a follower with it knows. takes_memory_share:
    whether it takes `rollout.gpu_memory_share` of the GPU that this process trains on. own_processes: whether it starts
    processes, which torchrun's environment confuses. seedable: whether seeds decide what is sampled, so that a resumed run
    samples the same responses. at_once: calls of `begin` that move on together.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    shares_weights: ClassVar[bool]
    takes_adapters: ClassVar[bool] = False
    weight_transfers: ClassVar[tuple[str, ...]] = ("folder",)
    follower_transfers: ClassVar[tuple[str, ...]] = ("folder",)
    takes_memory_share: ClassVar[bool] = False
    own_processes: ClassVar[bool] = False
    seedable: ClassVar[bool] = True
    extends: ClassVar[bool] = False
    at_once: ClassVar[int] = 1

    version: str

    @classmethod
    def build(
        cls, settings: RunSettings, model: "LanguageModel", *, compute_dtype: "torch.dtype | None", log_file: Path
    ) -> "Engine":
        """The engine that the settings describe, holding the model's weights.

        compute_dtype: of its arithmetic, None for float32; log_file: takes what it prints, if it prints. Raises `UsageError`
        when something it needs is not installed.
        """
        raise NotImplementedError(f"{cls.__name__} is not built from settings")

    def begin(
        self, prompts: Sequence[Sequence[int]], *, group_size: int, sampling: Sampling, seeds: Sequence[int]
    ) -> Callable[[], list[list[Completion]]]:
        """Have responses sampled as `generate` does, without waiting for them: what is returned waits, and gives them.

        Weights may be loaded when all that began has been waited for. The default samples nothing before that.
        """
        return partial(self.generate, prompts, group_size=group_size, sampling=sampling, seeds=seeds)

    def extend(
        self,
        partials: Sequence[Partial],
        limits: Sequence[int],
        *,
        sampling: Sampling,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Sample on, with the weights of now, until each response is finished or has `limits` tokens, in place.

        The noise of a token belongs to its seed, sample and place: with the same weights throughout, a response is what
        `generate` gives, up to rounding, however often it was extended. progress: as in `generate`.
        """
        raise NotImplementedError(f"engine {self.name} does not extend responses")

    def flight(self, partials: Sequence[Partial], *, sampling: Sampling) -> Ongoing:
        """All these responses in one decoding batch; they are changed in place. Raises `UsageError` when they do not fit."""
        raise NotImplementedError(f"engine {self.name} does not extend responses")

    def batches_at_once(self, rows: int) -> int:
        """How many launch batches of so many responses are best sampled in one call, where several are wanted of one policy.

        A function of the model, its device and the settings alone, for what is sampled together may differ in rounding.
        """
        return 1

    @abstractmethod
    def load_weights(self, weights: "Mapping[str, torch.Tensor]") -> None:
        """Take these weights (Hugging Face parameter names, float32) from now on. Caches of older weights are dropped."""

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds; ends subprocesses. May be called twice."""
