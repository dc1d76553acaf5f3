"""DAPO's soft overlong punishment: no penalty for a response that leaves room, a growing one for one that nearly does not."""

from collections.abc import Sequence

from pydantic import Field, model_validator

from gmc.rewards.base import Reward, RewardSettings, Sample, Score


class Length(Reward):
    """0 up to max_tokens − cache tokens, then falling in a straight line to −1 at max_tokens, −1 above.

    Equation 13 of DAPO (arXiv 2503.14476), where it is added to the reward of the answer.
    """

    name = "length"
    summary = "DAPO's soft overlong penalty: 0, falling to −1 over the last `cache` tokens"
    needs_answer = False

    class Settings(RewardSettings):
        """The two lengths of the equation, in tokens."""

        max_tokens: int = Field(ge=1, description="L_max, from which on the penalty is whole")
        cache: int = Field(ge=0, description="L_cache, over how many tokens before that it grows")

        @model_validator(mode="after")
        def _cache_fits(self) -> "Length.Settings":
            if self.cache > self.max_tokens:
                raise ValueError(f"cache {self.cache} is longer than max_tokens {self.max_tokens}")
            return self

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [self._score(len(sample.token_ids)) for sample in samples]

    def _score(self, length: int) -> Score:
        free = self.settings.max_tokens - self.settings.cache
        if length <= free:
            return Score(0.0, "in full")
        if length > self.settings.max_tokens:
            return Score(-1.0, "too long")
        return Score((free - length) / self.settings.cache, "long")
