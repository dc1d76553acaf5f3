"""Does a pattern match the response? Searched in a process of its own, for some patterns take for ever on some texts."""

import re
from collections.abc import Sequence

from pydantic import Field, field_validator

from gmc.rewards.base import Reward, RewardSettings, Sample, Score
from gmc.rewards.process import Worker, WorkerDiedError, WorkerTimeoutError
from gmc.rewards.searching import OUT_OF_TIME

WALL_SECONDS = 60.0
"""Stands behind the limit of CPU time, for a machine that does not get to the search."""


class Regex(Reward):
    """1 where the pattern is found in the response (`re.search`), else 0.

    With a group `(?P<answer>...)` what the group matches must be the gold answer, white space around both aside. A search that
    takes more than a second of CPU time is stopped: status "timeout", reward 0.
    """

    name = "regex"
    summary = "1 if a pattern is found in the response, and its group `answer` is the gold answer, else 0"
    binary = True

    class Settings(RewardSettings):
        """The pattern and where it may stand."""

        pattern: str = Field(description="a Python regular expression; dots match line breaks, too")
        whole: bool = Field(False, description="whether it must match the whole response")

        @field_validator("pattern")
        @classmethod
        def _compiles(cls, pattern: str) -> str:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"no regular expression: {error}") from error
            return pattern

    def __init__(self, settings: RewardSettings | None = None) -> None:
        super().__init__(settings)
        self.needs_answer = "answer" in re.compile(self.settings.pattern).groupindex
        self._worker = Worker("gmc.rewards.searching")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [self._score(sample) for sample in samples]

    def close(self) -> None:
        self._worker.close()

    def _score(self, sample: Sample) -> Score:
        question = [self.settings.pattern, self.settings.whole, sample.text]
        try:
            found, answer = self._worker.ask(question, WALL_SECONDS)
        except WorkerTimeoutError:
            return Score(0.0, "timeout")
        except WorkerDiedError as error:
            if error.code != -OUT_OF_TIME:
                raise
            return Score(0.0, "timeout")
        if not found:
            return Score(0.0, "no match")
        if not self.needs_answer:
            return Score(1.0, "match")
        right = answer is not None and answer.strip() == sample.problem.answer.strip()
        return Score(float(right), "correct" if right else "incorrect", answer)
