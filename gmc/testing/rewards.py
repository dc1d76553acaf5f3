"""The contract test of a reward: what it declares, and what it makes of ordinary and hostile responses."""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from gmc.errors import DataError
from gmc.problems.base import Problem
from gmc.rewards.base import Reward, Sample, Score, TrainerState
from gmc.testing.contract import run_checks

PROBLEM = Problem("p0", "What is $6\\cdot 7$?", "42", fields={"answer": "42"})
TEXTS = (
    r"\boxed{42}",
    "42",
    "",
    "the answer is unknown",
    r"\boxed{\boxed{",
    "\u0000\ud7ff\u2028 \x1b[31m",
    "9" * 400,
    "a" * 2000,
)
"""Responses: right, wrong, none, cut off, and what only an accident or an attack would write."""


class _Subject:
    """The reward under test and how it is made."""

    def __init__(self, reward: type[Reward], settings: Mapping[str, Any], problem: Problem) -> None:
        self.reward, self.settings, self.problem = reward, settings, problem

    def fresh(self) -> Reward:
        return self.reward(self.reward.Settings(**self.settings))

    def samples(self) -> list[Sample]:
        reward = self.fresh()
        with closing(reward):
            problem = reward.prepare(self.problem)
        return [Sample(problem, "asked", text, list(range(len(text))), cut) for text in TEXTS for cut in (False, True)]

    def scores(self, samples: Sequence[Sample]) -> Sequence[Score]:
        reward = self.fresh()
        with closing(reward):
            reward.begin(TrainerState(3, 10))
            return reward.score(samples)


def check_reward(reward: type[Reward], settings: Mapping[str, Any] | None = None, *, problem: Problem = PROBLEM) -> None:
    """Check a reward against the contract of `gmc.rewards.base`.

    It checks: the declarations; that a batch gives one finite score a response, in any order and size, the same again; that no
    response earns something else than 0 and 1 where `binary` says so; that a row without an answer is refused where the reward
    needs one; that it may be closed twice and used again. problem: one that it can score. Raises `AssertionError` listing every
    check that failed.
    """
    subject = _Subject(reward, settings or {}, problem)
    run_checks(CHECKS, subject, f"{getattr(reward, 'name', reward.__name__)} breaks the reward contract")


def _declarations(subject: _Subject) -> None:
    reward = subject.reward
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", reward.name), (
        f"name {reward.name!r} is not lower-case words and hyphens"
    )
    assert reward.summary.strip(), "summary is empty"
    assert "\n" not in reward.summary, "summary has more than one line"
    assert inspect.getdoc(reward) != inspect.getdoc(Reward), "it has no docstring, which gmc rewards show prints"
    for name, field in reward.Settings.model_fields.items():
        assert field.description, f"its setting {name} has no description"


def _scores(subject: _Subject) -> None:
    samples = subject.samples()
    scores = subject.scores(samples)
    assert len(scores) == len(samples), f"{len(scores)} scores for {len(samples)} responses"
    for sample, score in zip(samples, scores, strict=True):
        assert isinstance(score, Score), f"{score!r} is no Score"
        assert math.isfinite(score.reward), f"{score.reward} for {sample.text[:40]!r}; a reward is a finite number"
        assert score.status.strip(), f"no status for {sample.text[:40]!r}"
        if subject.fresh().binary:
            assert score.reward in (0, 1), f"{score.reward} for {sample.text[:40]!r}, and it says that it is binary"
    assert subject.scores([]) == [] or len(subject.scores([])) == 0, "no responses get a score"


def _repeats(subject: _Subject) -> None:
    samples = subject.samples()
    scores = [score.reward for score in subject.scores(samples)]
    assert [score.reward for score in subject.scores(samples)] == scores, "the same responses get other rewards"
    backward = [score.reward for score in subject.scores(samples[::-1])]
    assert backward[::-1] == scores, "rewards depend on the order of the responses"
    parts = [score.reward for part in (samples[:3], samples[3:]) for score in subject.scores(part)]
    assert parts == scores, "rewards depend on which responses are scored together"


def _missing_answer(subject: _Subject) -> None:
    reward = subject.fresh()
    if not reward.needs_answer:
        return
    empty = Problem("p1", "?", "", refused="no answer (answer is empty)")
    taken = True
    try:
        reward.prepare(empty)
    except DataError:
        taken = False
    assert not taken, "prepare takes a problem without an answer; raise DataError, or set needs_answer = False"


def _closing(subject: _Subject) -> None:
    reward, samples = subject.fresh(), subject.samples()[:2]
    first = [score.reward for score in reward.score(samples)]
    reward.close()
    reward.close()
    assert [score.reward for score in reward.score(samples)] == first, "after close it scores otherwise"
    reward.close()


CHECKS: dict[str, Callable[[_Subject], None]] = {
    "declarations": _declarations,
    "scores": _scores,
    "determinism": _repeats,
    "missing answer": _missing_answer,
    "closing": _closing,
}
