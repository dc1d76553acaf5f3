"""The contract of an environment: a class that answers what the model says, until the episode is over.

An environment is a plug-in: a class that a distribution registers under its `name` in the entry-point group
`gmc.environments`. `gmc environments new NAME` writes such a package, and `gmc.testing.check_environment` checks it.

It works on text. Token ids are kept by whoever plays the episode (`gmc.rollouts.episodes`): what the model sampled is never
encoded again, and what an environment writes is read by the model and never trained on.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from gmc.problems.base import Problem
from gmc.rewards.base import Score

ASSISTANT = "assistant"


@dataclass(frozen=True)
class Turn:
    """What one side said. role: "assistant" for the model, else the environment's own."""

    role: str
    text: str


@dataclass
class Episode:
    """One conversation about one problem.

    question: what the prompt template puts to the model first, the same for every episode of a problem. turns: what was said
    so far, the model's turn last when `reply` is asked. scores: what the run's reward makes of each of the model's turns,
    where the environment declares `scores_turns`; empty otherwise. seed: a number of this episode's own, for an environment
    that draws. memory: whatever the environment wants to remember.
    """

    problem: Problem
    question: str
    turns: list[Turn] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    seed: int = 0
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def model_turns(self) -> int:
        """How often the model has spoken."""
        return sum(turn.role == ASSISTANT for turn in self.turns)


class EnvironmentSettings(BaseModel):
    """Base of every environment's settings: typed, immutable, plain values, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Environment(ABC):
    """Base of every environment. Subclass it, set the declarations, write `reply`.

    name: as in `--environment`. summary: one line. Settings: its settings, given as `--environment 'name(key=value)'`.
    replies: whether it ever answers. inline: whether an answer stands right behind what the model said, as part of the same
    text, rather than as a turn that the prompt template writes. role: of its turns under a chat template. scores_turns: whether
    each of the model's turns is rewarded before `reply` is asked, so that the answer may depend on it. seconds: how long one
    call of `start`, `reply` or `worth` may take, as the run sets it; what takes longer ends the command in one line.

    Everything must be a function of the settings and the episode, or a resumed run makes other rollouts.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[EnvironmentSettings]] = EnvironmentSettings
    replies: ClassVar[bool] = True
    inline: ClassVar[bool] = False
    role: ClassVar[str] = "user"
    scores_turns: ClassVar[bool] = False
    seconds: float = 60.0

    def __init__(self, settings: EnvironmentSettings | None = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn of the model, besides those of the prompt template."""
        return ()

    @property
    def keeps_rewards(self) -> bool:
        """Whether `worth` leaves every reward as it is, so that one of 0 and 1 stays one."""
        return True

    @property
    def files(self) -> tuple[str, ...]:
        """Files of Python code that the settings name. A run goes on with the code that it began with. Default: none."""
        return ()

    def completed(self) -> EnvironmentSettings:
        """The settings as a run saves them, valid from any folder. Raises `UsageError` for what they name and is not there.
        Default: as they are."""
        return self.settings  # type: ignore[no-any-return]

    def start(self, problem: Problem) -> Episode:
        """A new episode. Default: the problem's question, as it is."""
        return Episode(problem, problem.question)

    @abstractmethod
    def reply(self, episode: Episode, text: str) -> str | None:
        """What the world answers to the model's last turn, `text`; None ends the episode. Never asked of a turn that was cut
        off at the length limit."""

    def worth(self, episode: Episode, score: Score) -> Score:
        """What a finished episode is worth. score: what the run's reward makes of the model's last turn. Default: just that."""
        return score

    def close(self) -> None:
        """End what the environment has started (processes); it may be used again. gmc calls it when a command ends, also by an
        error or Ctrl-C. Default: nothing."""
        return
