"""Trying an environment on one problem: what `gmc environments try` does."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion
from gmc.environments.base import ASSISTANT, Environment, Turn
from gmc.environments.build import build_environment
from gmc.environments.limits import called, close_environment, require_episode, require_reply, require_worth
from gmc.errors import UsageError
from gmc.models import LanguageModel
from gmc.problems.templates import get_template
from gmc.resolving.build import build_engine, build_model, build_problems, build_rewards
from gmc.rewards.base import Reward, Score, TrainerState
from gmc.rollouts.asked import Asked
from gmc.rollouts.episodes import Play
from gmc.rollouts.maker import sampling_seed
from gmc.rollouts.respond import respond


@dataclass(frozen=True)
class Tried:
    """One episode. turns: who said what, the model first; score: what it is worth, None where the environment still waits for
    the model."""

    turns: Sequence[tuple[str, str]]
    score: Score | None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "turns": [{"role": role, "text": text} for role, text in self.turns],
            "reward": self.score and self.score.reward,
            "status": self.score.status if self.score else "the environment waits for the model's next turn",
        }


@dataclass(frozen=True)
class EnvironmentTrial:
    """One problem as an environment puts it, and a few episodes. spec: the environment with all its settings."""

    spec: str
    asked: Asked
    episodes: Sequence[Tried]
    problems: int

    def record(self) -> dict[str, Any]:
        """As one JSON object."""
        problem: Mapping[str, str] = {
            "id": self.asked.problem.problem_id,
            "question": self.asked.problem.question,
            "answer": self.asked.problem.answer,
        }
        episodes = [episode.record() for episode in self.episodes]
        return {"environment": self.spec, "problem": problem, "prompt": self.asked.prompt, "episodes": episodes}


def try_environment(settings: RunSettings, *, said: Sequence[str] = (), count: int = 3, problem: int = 0) -> EnvironmentTrial:
    """Play `count` episodes that the model samples about one problem, or one in which the model says the texts `said` in turn.

    problem: its number in the data set, from 0. Raises `UsageError` for a number beyond, `GmcError` for what the reward or the
    environment raises.
    """
    rollout = settings.rollout
    with ExitStack() as resources:
        environment = build_environment(rollout.environment, seconds=rollout.environment_seconds)
        resources.callback(close_environment, environment)
        reward = resources.enter_context(build_rewards(settings))
        reward.start()
        found = build_problems(settings, reward)
        if problem >= len(found):
            raise UsageError(f"--problem {problem}: {found.source} has {len(found)} problems, counted from 0")
        reward.begin(TrainerState(0, settings.train.updates))
        model, template = build_model(settings), get_template(settings.problems.template)
        asked = Asked.of(found.problems[problem], template, model.tokenizer, environment)
        if said:
            episodes = [_say(environment, reward, model, asked, said)]
        else:
            episodes = _sample(settings, environment, reward, model, asked, count)
        return EnvironmentTrial(rollout.environment, asked, episodes, len(found))


def _say(environment: Environment, reward: Reward, model: LanguageModel, asked: Asked, said: Sequence[str]) -> Tried:
    problem_id = asked.problem.problem_id
    with called(environment, problem_id, "start"):
        play = Play(asked, 0, 0, require_episode(environment.start(asked.problem)))
    for number, text in enumerate(said, start=1):
        ids = [int(token) for token in model.tokenizer(text, add_special_tokens=False)["input_ids"]]
        play.add(Completion(ids, [0.0] * len(ids), "stop"), text)
        (score,) = reward.score([play.to_score()])
        play.episode.scores.append(score)
        with called(environment, problem_id, f"reply to turn {number}"):
            reply = require_reply(environment.reply(play.episode, text)) if environment.replies else None
        if reply is None:
            if number < len(said):
                raise UsageError(f"--say {said[number]!r}: the episode was over with turn {number}; leave it out")
            with called(environment, problem_id, "worth"):
                return Tried(_turns(play), require_worth(environment.worth(play.episode, score)))
        play.episode.turns.append(Turn(environment.role, reply))
    return Tried(_turns(play), None)


def _turns(play: Play) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in play.episode.turns]


def _sample(
    settings: RunSettings, environment: Environment, reward: Reward, model: LanguageModel, asked: Asked, count: int
) -> list[Tried]:
    with tempfile.TemporaryDirectory() as folder, closing(build_engine(settings, model, Path(folder, "log"))) as engine:
        (responses,) = respond(
            engine,
            model.tokenizer,
            reward,
            [asked],
            group_size=count,
            sampling=settings.rollout.sampling(asked.template.stop if asked.template else ()),
            seeds=[sampling_seed(settings.seed, 0, 0)],
            environment=environment,
        )
    return [
        Tried(
            [
                (ASSISTANT if turn % 2 == 0 else environment.role, text)
                for turn, text in enumerate(response.turns or [response.text])
            ],
            response.score,
        )
        for response in responses
    ]
