"""The contract test of an environment: what it declares, and how it answers ordinary and hostile turns."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from gmc.environments.base import ASSISTANT, Environment, Episode, Turn
from gmc.problems.base import Problem
from gmc.rewards.base import Score
from gmc.testing.contract import run_checks

PROBLEM = Problem("p1", "What is $3+4$?", "7", fields={"level": "1"})
MOST_TURNS = 1000
TEXTS = (
    "7",
    "The answer is \\boxed{8}.",
    "",
    " \n",
    "<tool>3*4</tool>",
    "\N{SNOWMAN} é \x00 \x1b[31m",
    "Problem:\n" * 50,
    "x" * 2000,
)
"""What a model may say: an answer, another, nothing, a call, what a terminal would obey, and too much."""


class _Subject:
    """The environment under test and how it is made."""

    def __init__(self, environment: type[Environment], settings: Mapping[str, Any], problem: Problem) -> None:
        self.environment, self.settings, self.problem = environment, settings, problem

    def fresh(self) -> Environment:
        return self.environment(self.environment.Settings(**self.settings))

    def begin(self, environment: Environment, first: int) -> Episode:
        """A new episode in which the model will say the texts in turn, from number `first`."""
        episode = environment.start(self.problem)
        episode.seed = first
        return episode

    def step(self, environment: Environment, episode: Episode, reward: float = 0.0) -> str | None:
        """Let the model say its next text, of this reward, and the environment answer."""
        turn = episode.model_turns
        if turn == MOST_TURNS:
            raise AssertionError(f"an episode does not end within {MOST_TURNS} turns; return None at some time")
        text = TEXTS[(episode.seed + turn) % len(TEXTS)]
        episode.turns.append(Turn(ASSISTANT, text))
        if environment.scores_turns:
            episode.scores.append(Score(reward, "tested"))
        reply = environment.reply(episode, text)
        if reply is not None:
            assert isinstance(reply, str), f"reply gave {type(reply).__name__} for {text[:40]!r}; a text, or None to end"
            episode.turns.append(Turn(environment.role, reply))
        return reply

    def play(self, environment: Environment, first: int, reward: float = 0.0) -> tuple[Episode, list[str]]:
        """A whole episode, and what the model was answered."""
        episode, replies = self.begin(environment, first), list[str]()
        while (reply := self.step(environment, episode, reward)) is not None:
            replies.append(reply)
        return episode, replies

    def play_side_by_side(self, environment: Environment) -> list[list[str]]:
        """What is answered in episodes that take turns with each other, as those of a batch do."""
        episodes = [self.begin(environment, first) for first in range(len(TEXTS))]
        replies: list[list[str]] = [[] for _ in episodes]
        waiting = list(range(len(episodes)))
        while waiting:
            answers = {place: self.step(environment, episodes[place]) for place in waiting}
            waiting = [place for place, reply in answers.items() if reply is not None]
            for place in waiting:
                replies[place].append(str(answers[place]))
        return replies


def check_environment(
    environment: type[Environment], settings: Mapping[str, Any] | None = None, *, problem: Problem = PROBLEM
) -> None:
    """Check an environment against the contract of `gmc.environments.base`.

    It checks: the declarations; that every episode of a problem begins with the same question; that whatever the model says is
    answered with text or ends the episode, which does end; that the same turns get the same answers, also from a fresh object
    and while other episodes are played; that what an episode is worth is finite, and unchanged where `keeps_rewards` says so;
    that it may be closed twice and used again. problem: one that it can ask. Raises `AssertionError` listing every check that
    failed.
    """
    subject = _Subject(environment, settings or {}, problem)
    run_checks(CHECKS, subject, f"{getattr(environment, 'name', environment.__name__)} breaks the environment contract")


def _declarations(subject: _Subject) -> None:
    environment = subject.environment
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", environment.name), (
        f"name {environment.name!r} is not lower-case words and hyphens"
    )
    assert environment.summary.strip(), "summary is empty"
    assert "\n" not in environment.summary, "summary has more than one line"
    assert inspect.getdoc(environment) != inspect.getdoc(Environment), "it has no docstring, which gmc environments show prints"
    assert environment.role != ASSISTANT, f"role is {ASSISTANT!r}, which is the model's"
    assert all(subject.fresh().stop), "a stop string is empty"
    for name, field in environment.Settings.model_fields.items():
        assert field.description, f"its setting {name} has no description"


def _starts(subject: _Subject) -> None:
    environment = subject.fresh()
    with closing(environment):
        first, second = environment.start(subject.problem), environment.start(subject.problem)
    assert first.question == second.question, "two episodes of a problem begin with different questions"
    assert first is not second, "start gives the same episode twice; each response needs its own"
    assert first.question.strip(), "the first question is empty"
    assert not first.turns, "a new episode has turns already; the first question is `Episode.question`"


def _replies(subject: _Subject) -> None:
    for first in range(len(TEXTS)):
        environment = subject.fresh()
        with closing(environment):
            _, replies = subject.play(environment, first)
        assert environment.replies or not replies, "it replies, and declares replies = False"


def _repeats(subject: _Subject) -> None:
    together = subject.fresh()
    alone = []
    with closing(together):
        for first in range(len(TEXTS)):
            fresh = subject.fresh()
            with closing(fresh):
                alone.append(subject.play(fresh, first)[1])
            assert subject.play(together, first)[1] == alone[-1], "the same turns get other answers after other episodes"
        beside = subject.play_side_by_side(together)
        assert beside == alone, "the same turns get other answers beside other episodes; what it remembers belongs to `Episode`"


def _worth(subject: _Subject) -> None:
    environment = subject.fresh()
    with closing(environment):
        for first in range(len(TEXTS)):
            for reward in (0.0, 0.3, 1.0):
                episode, _ = subject.play(environment, first, reward)
                score = environment.worth(episode, Score(reward, "tested"))
                assert isinstance(score, Score), f"worth gave {type(score).__name__}, not a Score"
                assert math.isfinite(score.reward), f"an episode is worth {score.reward}; give a finite number"
                assert score.reward == reward or not environment.keeps_rewards, (
                    f"an episode of reward {reward} is worth {score.reward}, and keeps_rewards says that none changes"
                )


def _closing(subject: _Subject) -> None:
    environment = subject.fresh()
    first = subject.play(environment, 0)[1]
    environment.close()
    environment.close()
    assert subject.play(environment, 0)[1] == first, "after close it answers otherwise"
    environment.close()


CHECKS: dict[str, Callable[[_Subject], None]] = {
    "declarations": _declarations,
    "start": _starts,
    "replies": _replies,
    "determinism": _repeats,
    "worth": _worth,
    "closing": _closing,
}
