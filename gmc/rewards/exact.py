"""Is the whole response the gold answer, letter by letter?"""

from collections.abc import Sequence

from pydantic import Field

from gmc.errors import DataError
from gmc.problems.base import Problem
from gmc.rewards.base import Reward, RewardSettings, Sample, Score


class Exact(Reward):
    """1 where the response, without the white space around it, is the answer; else 0."""

    name = "exact"
    summary = "1 if the whole response is the gold answer, else 0"
    binary = True

    class Settings(RewardSettings):
        """ignore_case: see its description."""

        ignore_case: bool = Field(False, description="whether capital and small letters are alike")

    def prepare(self, problem: Problem) -> Problem:
        if not problem.answer.strip():
            raise DataError("the answer is empty")
        return problem

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        scores = []
        for sample in samples:
            text = sample.text.strip()
            right = self._key(text) == self._key(sample.problem.answer.strip())
            scores.append(Score(float(right), "correct" if right else "incorrect", text))
        return scores

    def _key(self, text: str) -> str:
        return text.casefold() if self.settings.ignore_case else text
