"""`check_reward` names each way of breaking the contract of a reward."""

import itertools
import math

import pytest
from contract_faults import assert_found, broken, closes_once, declaration_faults, settings_with

from gmc.rewards.base import Reward, RewardSettings, Score
from gmc.testing import check_reward
from gmc.testing.rewards import CHECKS

pytestmark = pytest.mark.unit


class Plain(Reward):
    """Keeps the contract: whether the text is the gold answer."""

    name = "plain"
    summary = "one line"
    binary = True
    needs_answer = False

    def score(self, samples):
        return [Score(float(sample.text == sample.problem.answer), "seen") for sample in samples]


def of_each(value, status="seen"):
    """Scores every sample by itself."""
    return lambda self, samples: [Score(value(sample), status) for sample in samples]


class Counting(Plain):
    """Makes every response worth more than the one before it, in whichever object."""

    binary = False
    numbers = itertools.count()

    def score(self, samples):
        return [Score(float(next(self.numbers)), "seen") for _ in samples]


class Ends(Plain):
    """Cannot be used after close."""

    closed = False

    def score(self, samples):
        if self.closed:
            raise RuntimeError("the pool is gone")
        return super().score(samples)

    def close(self):
        self.closed = True


class Remembers(Ends):
    """Scores otherwise after close."""

    def score(self, samples):
        return [Score(float(self.closed), "seen") for _ in samples]


class TakesAnything(Plain):
    """Needs an answer, and takes a row without one."""

    needs_answer = True


FAULTS = [
    *declaration_faults(Plain, Reward, RewardSettings),
    (
        broken(Plain, score=lambda self, samples: [Score(0.0, "seen")] * (len(samples) - 1)),
        "scores: 15 scores for 16 responses",
    ),
    (broken(Plain, score=lambda self, samples: [0.0 for _ in samples]), "scores: 0.0 is no Score"),
    (broken(Plain, score=of_each(lambda one: math.nan), binary=False), "scores: nan for '"),
    (broken(Plain, score=of_each(lambda one: math.inf), binary=False), "scores: inf for '"),
    (broken(Plain, score=of_each(lambda one: 0.0, " ")), "scores: no status for '"),
    (broken(Plain, score=of_each(lambda one: 0.5)), "and it says that it is binary"),
    (
        broken(Plain, score=lambda self, samples: [Score(0.0, "seen")] * max(1, len(samples))),
        "scores: no responses get a score",
    ),
    (broken(Plain, score=of_each(lambda one: 1 / len(one.text)), binary=False), "scores: ZeroDivisionError"),
    (Counting, "determinism: the same responses get other rewards"),
    (
        broken(Plain, score=lambda self, samples: [Score(float(place), "seen") for place in range(len(samples))], binary=False),
        "determinism: rewards depend on the order",
    ),
    (
        broken(Plain, score=lambda self, samples: [Score(1 / len(samples), "seen") for _ in samples], binary=False),
        "determinism: rewards depend on which responses are scored together",
    ),
    (TakesAnything, "missing answer: prepare takes a problem without an answer"),
    (Ends, "closing: RuntimeError: the pool is gone"),
    (Remembers, "closing: after close it scores otherwise"),
    (closes_once(Plain), "closing: IndexError"),
]


@pytest.mark.parametrize(("reward", "finding"), FAULTS, ids=[finding for _, finding in FAULTS])
def test_each_way_of_breaking_the_contract_is_named(reward, finding):
    assert_found(check_reward, reward, "reward", finding)


def test_a_sound_reward_passes_and_every_check_has_a_reward_that_fails_it():
    check_reward(Plain)
    check_reward(broken(Plain, Settings=settings_with(RewardSettings, description="a number")), {"level": 2.0})
    assert {finding.partition(":")[0] for _, finding in FAULTS if ": " in finding} == set(CHECKS)
