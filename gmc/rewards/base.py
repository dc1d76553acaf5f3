"""The contract of a reward: a class that says of every response of a batch what it is worth.

A reward is a plug-in: a class that a distribution registers under its `name` in the entry-point group `gmc.rewards`.
`gmc rewards new NAME` writes such a package, and `gmc.testing.check_reward` checks it. A plain Python function needs no class:
`--reward rewards.py:short` (see `gmc.rewards.function`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from gmc.problems.base import Problem

NOT_APPLICABLE = "not applicable"
"""Status of a response that a reward has nothing to say about: it adds nothing to the sum."""

Message = Mapping[str, str]
"""One message of a conversation: its role and its content."""


@dataclass(frozen=True)
class TrainerState:
    """How far the training is when responses are scored. global_step: version of the policy that made them; max_steps: the
    planned updates, 0 where nothing is trained."""

    global_step: int = 0
    max_steps: int = 0


@dataclass(frozen=True)
class Sample:
    """One response to be scored.

    problem: its question, gold answer and every other column of its row (`problem.fields`). prompt: what the model was shown,
    as text; messages: the same before a chat template wrote it. text, token_ids: the response. truncated: cut off at the length
    limit. turns: the conversation after the prompt, where there was more than one response; empty otherwise.
    """

    problem: Problem
    prompt: str
    text: str
    token_ids: Sequence[int]
    truncated: bool = False
    messages: Sequence[Message] = ()
    turns: Sequence[Message] = ()


@dataclass(frozen=True)
class Score:
    """What one response is worth.

    reward: a finite number; status: how it came about, in a word or two ("correct", "unparseable", "timeout"); prediction: the
    answer found in the response, None without one; parts: what a reward made of several is made of, NaN where a part does not
    apply; note: what the reward wants to be remembered about this response.
    """

    reward: float
    status: str
    prediction: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None


class RewardSettings(BaseModel):
    """Base of every reward's settings: typed, immutable, plain values, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Reward(ABC):
    """Base of every reward. Subclass it, set the declarations, write `score`.

    name: as in `--reward`. summary: one line. Settings: its settings, given as `--reward 'name(key=value)'`. binary: whether
    every reward is 0 or 1, so that pass@k and maj@k make sense. needs_answer: whether a problem without a gold answer is
    refused; without it `problem.answer` may be empty.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[RewardSettings]] = RewardSettings
    binary: bool = False
    needs_answer: bool = True

    def __init__(self, settings: RewardSettings | None = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings

    def prepare(self, problem: Problem) -> Problem:
        """The problem as this reward wants it. Raises `DataError` with the reason to refuse its row. Default: unchanged."""
        return problem

    def begin(self, state: TrainerState) -> None:
        """Told before the responses of a policy are scored. Default: nothing."""
        return

    @abstractmethod
    def score(self, samples: Sequence[Sample]) -> Sequence[Score]:
        """One score a sample, in order: a whole batch at once, since one call may be cheaper than many."""

    def metrics(self) -> Mapping[str, float]:
        """Finite numbers about the responses scored since this was last asked. Default: none."""
        return {}

    def close(self) -> None:
        """End what the reward has started (processes); it may be used again. Default: nothing."""
        return
