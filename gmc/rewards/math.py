"""Is the response's final answer the gold answer, as mathematics? The default, and what gmc 0.1 rewarded."""

from collections.abc import Sequence

from pydantic import Field

from gmc.grading import Grader
from gmc.grading.thinking import opens_thinking
from gmc.problems.base import Problem
from gmc.problems.load import mathematical
from gmc.rewards.base import Reward, RewardSettings, Sample, Score


class Math(Reward):
    """1 where the answer found in the response equals the gold, else 0, decided in tiers: text, number, symbolic.

    The symbolic tier runs in killable processes with a limit of CPU time and memory, see docs/grading.md.
    """

    name = "math"
    summary = "1 if the final answer equals the gold answer as mathematics, else 0"
    binary = True

    class Settings(RewardSettings):
        """strict: as in training."""

        strict: bool = Field(True, description="false: a number that merely stands last in a response counts as its answer")

    def __init__(self, settings: RewardSettings | None = None) -> None:
        super().__init__(settings)
        self.grader = Grader(strict=self.settings.strict)

    def prepare(self, problem: Problem) -> Problem:
        return mathematical(problem)

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        verdicts = self.grader.grade_many(
            [(sample.problem.answer, sample.text) for sample in samples],
            truncated=[sample.truncated for sample in samples],
            thinking=[opens_thinking(sample.prompt, sample.problem.question) for sample in samples],
        )
        return [Score(float(verdict.correct), verdict.status, verdict.prediction, note=verdict.how) for verdict in verdicts]

    def close(self) -> None:
        self.grader.close()
