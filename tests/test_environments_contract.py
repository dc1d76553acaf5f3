"""`check_environment` names each way of breaking the contract of an environment."""

import itertools
import math

import pytest
from contract_faults import assert_found, broken, closes_once, declaration_faults, settings_with

from gmc.environments.base import ASSISTANT, Environment, EnvironmentSettings, Episode, Turn
from gmc.rewards.base import Score
from gmc.testing import check_environment, environments
from gmc.testing.environments import CHECKS

pytestmark = pytest.mark.unit


class Plain(Environment):
    """Keeps the contract: asks twice more, and counts in the episode."""

    name = "plain"
    summary = "one line"

    def reply(self, episode, text):
        return f"{episode.model_turns}: {len(text)}" if episode.model_turns < 3 else None


class AsksOtherwise(Plain):
    """Begins every episode with another question."""

    numbers = itertools.count()

    def start(self, problem):
        return Episode(problem, f"{problem.question} ({next(self.numbers)})")


class OneEpisode(Plain):
    """Gives the same episode to every response."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.episode = None

    def start(self, problem):
        self.episode = self.episode or Episode(problem, problem.question)
        return self.episode


class CountsCalls(Plain):
    """Counts over all of its episodes."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.calls = 0

    def reply(self, episode, text):
        self.calls += 1
        return str(self.calls) if episode.model_turns < 3 else None


class CountsTheLast(CountsCalls):
    """Counts anew with each episode, so that it takes those that are played together for one."""

    def start(self, problem):
        self.calls = 0
        return super().start(problem)


class Ends(Plain):
    """Cannot be used after close."""

    closed = False

    def reply(self, episode, text):
        if self.closed:
            raise RuntimeError("the process is gone")
        return super().reply(episode, text)

    def close(self):
        self.closed = True


class Remembers(Ends):
    """Answers otherwise after close."""

    def reply(self, episode, text):
        return f"closed: {self.closed}" if episode.model_turns < 3 else None


FAULTS = [
    *declaration_faults(Plain, Environment, EnvironmentSettings),
    (broken(Plain, role=ASSISTANT), "declarations: role is 'assistant', which is the model's"),
    (broken(Plain, stop=("end", "")), "declarations: a stop string is empty"),
    (AsksOtherwise, "start: two episodes of a problem begin with different questions"),
    (OneEpisode, "start: start gives the same episode twice"),
    (broken(Plain, start=lambda self, problem: Episode(problem, " \n")), "start: the first question is empty"),
    (
        broken(Plain, start=lambda self, problem: Episode(problem, "?", [Turn("user", "?")])),
        "start: a new episode has turns already",
    ),
    (broken(Plain, reply=lambda self, episode, text: 7), "replies: reply gave int for '7'"),
    (broken(Plain, reply=lambda self, episode, text: "more"), "replies: an episode does not end within 20 turns"),
    (broken(Plain, reply=lambda self, episode, text: str(text.encode("ascii")) and None), "replies: UnicodeEncodeError"),
    (broken(Plain, replies=False), "replies: it replies, and declares replies = False"),
    (CountsCalls, "determinism: the same turns get other answers after other episodes"),
    (CountsTheLast, "determinism: the same turns get other answers beside other episodes"),
    (broken(Plain, worth=lambda self, episode, score: score.reward), "worth: worth gave float, not a Score"),
    (
        broken(Plain, worth=lambda self, episode, score: Score(math.nan, "lost"), keeps_rewards=False),
        "worth: an episode is worth nan",
    ),
    (
        broken(Plain, worth=lambda self, episode, score: Score(score.reward / len(episode.turns), "paid")),
        "worth: an episode of reward 0.3 is worth 0.06, and keeps_rewards says that none changes",
    ),
    (Ends, "closing: RuntimeError: the process is gone"),
    (Remembers, "closing: after close it answers otherwise"),
    (closes_once(Plain), "closing: IndexError"),
]


@pytest.mark.parametrize(("environment", "finding"), FAULTS, ids=[finding for _, finding in FAULTS])
def test_each_way_of_breaking_the_contract_is_named(monkeypatch, environment, finding):
    monkeypatch.setattr(environments, "MOST_TURNS", 20)
    assert_found(check_environment, environment, "environment", finding)


def test_a_sound_environment_passes_and_every_check_has_one_that_fails_it():
    check_environment(Plain)
    check_environment(broken(Plain, Settings=settings_with(EnvironmentSettings, description="a number")), {"level": 2.0})
    assert {finding.partition(":")[0] for _, finding in FAULTS} == set(CHECKS)
