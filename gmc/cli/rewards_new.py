"""The package that `gmc rewards new` writes: one reward that works as it stands, and its test."""

from string import Template

from gmc.cli.scaffold import Scaffold
from gmc.rewards.registry import GROUP, list_rewards

REWARD = Template('''\
"""$name: one line that says what is rewarded."""

from collections.abc import Sequence

from gmc.rewards.base import Reward, RewardSettings, Sample, Score
from pydantic import Field


class $cls(Reward):
    """1 for a response that ends with a full stop and has at most so many words, less for every word more. Replace it."""

    name = "$name"
    summary = "short sentences, as scaffolded"
    binary = False
    needs_answer = False

    class Settings(RewardSettings):
        """words: see its description."""

        words: int = Field(20, ge=1, description="words that cost nothing")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One score a response."""
        return [self._score(sample.text) for sample in samples]

    def _score(self, text: str) -> Score:
        if not text.rstrip().endswith("."):
            return Score(0.0, "no full stop")
        return Score(min(1.0, self.settings.words / len(text.split())), "sentence")
''')

TEST = Template("""\
from gmc.problems.base import Problem
from gmc.rewards.base import Sample
from gmc.testing import check_reward

from $package.reward import $cls


def test_the_contract():
    check_reward($cls, {"words": 3})


def test_the_rewards():
    texts = ("Two words.", "Now there are six words here.", "No full stop")
    samples = [Sample(Problem("p", "?", ""), "?", text, [1]) for text in texts]
    reward = $cls($cls.Settings(words=3))
    assert [score.reward for score in reward.score(samples)] == [1.0, 0.5, 0.0]
""")

REWARD_SCAFFOLD = Scaffold(
    kind="reward",
    group=GROUP,
    installed=list_rewards,
    module="reward",
    source=REWARD,
    test=TEST,
    title=Template("The reward $name"),
    commands=Template("gmc rewards try $name\n    gmc train --reward $name"),
    check="check_reward",
    contract="gmc.rewards.base.Reward",
)
