"""Trying a reward on a few responses to one problem: what `gmc rewards try` does."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.errors import UsageError
from gmc.problems.base import Problem
from gmc.problems.templates import get_template
from gmc.resolving.build import build_engine, build_model, build_problems, build_rewards
from gmc.rewards.base import Reward, Sample, Score, TrainerState
from gmc.rewards.combined import CombinedReward
from gmc.rewards.function import FunctionReward
from gmc.rollouts.asked import Asked
from gmc.rollouts.maker import sampling_seed
from gmc.rollouts.respond import respond


@dataclass(frozen=True)
class Trial:
    """One problem with scored responses. given: what each function of the reward was called with, by the part's name; metrics:
    what the reward logged; problems: in the data set, after those that the reward refuses."""

    samples: Sequence[Sample]
    scores: Sequence[Score]
    given: Mapping[str, Mapping[str, Sequence[Any]]]
    metrics: Mapping[str, float]
    problems: int
    notes: Sequence[str]

    def record(self) -> dict[str, Any]:
        """As one JSON object."""
        problem = self.samples[0].problem
        return {
            "problem": {"id": problem.problem_id, "question": problem.question, "answer": problem.answer},
            "fields": {name: str(value) for name, value in problem.fields.items()},
            "prompt": self.samples[0].prompt,
            "responses": [
                {"text": sample.text, "tokens": len(sample.token_ids), "truncated": sample.truncated, **vars(score)}
                for sample, score in zip(self.samples, self.scores, strict=True)
            ],
            "metrics": dict(self.metrics),
            "notes": list(self.notes),
        }


def try_reward(settings: RunSettings, *, responses: Sequence[str] = (), count: int = 3, problem: int = 0) -> Trial:
    """Score `count` responses that the model samples to one problem, or these `responses`.

    problem: its number in the data set, from 0. Raises `UsageError` for a number beyond, `GmcError` for what the reward raises.
    """
    with build_rewards(settings) as reward:
        reward.start()
        found = build_problems(settings, reward)
        if problem >= len(found):
            raise UsageError(f"--problem {problem}: {found.source} has {len(found)} problems, counted from 0")
        reward.begin(TrainerState(0, settings.train.updates))
        watched = _Watched(reward)
        _sample(settings, found.problems[problem], watched, responses, count)
        return Trial(
            watched.samples, watched.scores, _given(reward, watched.samples), dict(reward.metrics()), len(found), found.notes
        )


class _Watched(Reward):
    """Passes on to the reward, and remembers."""

    name = "watched"
    summary = "what it is made of"

    def __init__(self, reward: Reward) -> None:
        super().__init__()
        self._reward = reward
        self.samples: Sequence[Sample] = ()
        self.scores: Sequence[Score] = ()

    def score(self, samples: Sequence[Sample]) -> Sequence[Score]:
        self.samples, self.scores = samples, self._reward.score(samples)
        return self.scores


def _sample(settings: RunSettings, problem: Problem, reward: Reward, responses: Sequence[str], count: int) -> None:
    model, template = build_model(settings), get_template(settings.problems.template)
    asked = Asked.of(problem, template, model.tokenizer)
    if responses:
        ids = [[int(token) for token in model.tokenizer(text, add_special_tokens=False)["input_ids"]] for text in responses]
        reward.score(
            [
                Sample(problem, asked.prompt, text, own, messages=asked.messages)
                for text, own in zip(responses, ids, strict=True)
            ]
        )
        return
    with tempfile.TemporaryDirectory() as folder, closing(build_engine(settings, model, Path(folder, "log"))) as engine:
        respond(
            engine,
            model.tokenizer,
            reward,
            [asked],
            group_size=count,
            sampling=settings.rollout.sampling(template.stop),
            seeds=[sampling_seed(settings.seed, 0, 0)],
        )


def _given(reward: CombinedReward, samples: Sequence[Sample]) -> dict[str, Mapping[str, Sequence[Any]]]:
    return {part.label: part.reward.inputs(samples) for part in reward.parts if isinstance(part.reward, FunctionReward)}
