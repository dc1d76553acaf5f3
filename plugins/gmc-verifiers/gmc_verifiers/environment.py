"""The environment: gmc samples, verifiers answers and scores."""

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gmc.environments.base import Environment, EnvironmentSettings, Episode
from gmc.errors import DataError, GmcError
from gmc.problems.base import Problem
from gmc.rewards.base import Score

if TYPE_CHECKING:
    from verifiers.v1.episode import Episode as Played

    from gmc_verifiers.conversation import Conversation
    from gmc_verifiers.host import Host

TASK, KEY = "verifiers_task", "verifiers_key"
"""Columns of a problem file: the index of the task, and its key, so that another version of the environment is noticed."""


class VerifiersEnvironment(Environment):
    """Plays an environment that is installed for the library `verifiers`: its first question, its answers, its rewards.

    Problems come from `gmc-verifiers-problems ENV FILE`. An episode is worth the sum of the environment's weighted rewards; the
    run's reward is not used, and `--reward verifiers` is one that asks for no gold answer. Environments of one agent without
    tools can be played, on the harness `null` or the default one; others are refused by name.
    """

    name = "verifiers"
    summary = "an installed environment of the library verifiers answers the model and rewards it"

    class Settings(EnvironmentSettings):
        """env: see its description."""

        env: str = Field(description="the environment's name, as in `eval NAME` of verifiers; its package must be installed")

    @property
    def keeps_rewards(self) -> bool:
        return False

    def __init__(self, settings: EnvironmentSettings | None = None) -> None:
        super().__init__(settings)
        self._host: Host | None = None
        self._questions: dict[int, str] = {}

    @cached_property
    def _env(self) -> Any:
        from gmc_verifiers.loading import Tasks, load

        env = load(self.settings.env)
        return env, Tasks(env)

    def start(self, problem: Problem) -> Episode:
        """An episode that begins with what the environment asks first. Raises `DataError` for a problem that is not its own."""
        index = self._index(problem)
        if index not in self._questions:
            conversation, question = self._begin(index)
            self._running.drop(conversation)
            self._questions[index] = question
        return Episode(problem, self._questions[index])

    def reply(self, episode: Episode, text: str) -> str | None:
        conversation = self._conversation(episode)
        episode.memory["said"] = episode.model_turns
        return self._asked(lambda: self._running.say(conversation, text))

    def worth(self, episode: Episode, score: Score) -> Score:
        """The environment's own reward. One that was cut off is scored by it as one that reached a limit of verifiers."""
        conversation = self._conversation(episode)
        assert conversation.play is not None
        if not conversation.play.done():
            if episode.memory.get("said", 0) < episode.model_turns:
                episode.memory["said"] = episode.model_turns
                self._asked(lambda: self._running.say(conversation, episode.turns[-1].text, cut=True))
            else:  # its answer did not fit
                self._asked(lambda: self._running.end(conversation))
        rewards = self._rewards(conversation.play.result())
        note = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
        return replace(score, reward=math.fsum(rewards.values()), status="verifiers", note=note)

    def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()

    @property
    def _running(self) -> "Host":
        from gmc_verifiers.host import Host

        if self._host is None:
            self._host = Host(self._env[0], self.seconds)
        return self._host

    def _index(self, problem: Problem) -> int:
        index, key = problem.fields.get(TASK), problem.fields.get(KEY)
        cure = f"write its problems with gmc-verifiers-problems {self.settings.env} FILE"
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise DataError(f"problem {problem.problem_id} has no {TASK}, the index of a task of {self.settings.env}; {cure}")
        try:
            task = self._env[1][index]
        except IndexError:
            raise DataError(f"problem {problem.problem_id}: {self.settings.env} has no task {index}; {cure}") from None
        if task.key != key:
            raise DataError(f"problem {problem.problem_id}: task {index} of {self.settings.env} is another one now; {cure}")
        return index

    def _conversation(self, episode: Episode) -> "Conversation":
        """The episode as verifiers plays it, begun with the first turn of the model: a prompt needs none."""
        if "conversation" not in episode.memory:
            conversation, question = self._begin(self._index(episode.problem))
            episode.memory["conversation"] = conversation
            if question != episode.question:
                raise GmcError(f"{self.settings.env} does not begin each episode of a task with the same question")
        return episode.memory["conversation"]  # type: ignore[no-any-return]

    def _begin(self, index: int) -> "tuple[Conversation, str]":
        conversation, question = self._asked(lambda: self._running.begin(self._env[1][index]))
        if question is None:
            self._rewards(conversation.play.result())
            raise GmcError(f"{self.settings.env} ended task {index} before the model was asked anything")
        return conversation, question

    def _asked(self, step: Any) -> Any:
        """What a step gives, with the environment's name in what is raised."""
        try:
            return step()
        except GmcError as error:
            raise type(error)(f"environment verifiers, env={self.settings.env!r}: {error}") from error

    def _rewards(self, played: "Played") -> dict[str, float]:
        """Its weighted rewards by name. Raises `GmcError` in one line for an episode that failed or was not scored."""
        where = f"environment verifiers, env={self.settings.env!r}"
        errors = [*played.errors, *(error for trace in played.traces for error in trace.errors)]
        if not played.ok or len(played.traces) != 1:
            first = f"{errors[0].type}: {errors[0].message}" if errors else "its episode did not end well"
            raise GmcError(f"{where}: {' '.join(first.split())[:400]}. Repair it and go on with --resume")
        rewards = {name: reward.value if reward else math.nan for name, reward in played.traces[0].rewards.items()}
        wrong = [name for name, value in rewards.items() if not math.isfinite(value)]
        if wrong or not rewards:
            what = f"its reward {wrong[0]} gave no finite number" if wrong else "it has no reward"
            raise GmcError(f"{where}: {what}. Repair it and go on with --resume")
        return rewards
