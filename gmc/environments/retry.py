"""A wrong answer gets another try, for part of the reward."""

import re
from dataclasses import replace

from pydantic import Field, field_validator

from gmc.environments.base import Environment, EnvironmentSettings, Episode
from gmc.rewards.base import Score

_PLACE = re.compile(r"(?<![\w\\$}])\{[A-Za-z_]\w*\}")
"""What a person means to be filled in; the braces of a TeX command or a set are none."""


class Retry(Environment):
    """Tells the model when its answer is not right, and lets it try again.

    An answer is right when the run's reward gives it at least `enough`. The answer of try n is worth share^(n−1) of its reward,
    so a model is paid for being right early and, when it was wrong, for making something of being told so. The model is told
    `message`, in which {question} stands for the question.
    """

    name = "retry"
    summary = "a wrong answer gets another try, for part of the reward"
    scores_turns = True

    class Settings(EnvironmentSettings):
        """tries, share, enough, message: see their descriptions."""

        tries: int = Field(2, ge=2, description="answers that the model may give in all")
        share: float = Field(0.5, ge=0, le=1, description="what a right answer keeps of its reward for every try before it")
        enough: float = Field(1.0, description="an answer whose reward is at least this is right, and ends the episode")
        message: str = Field("Wrong. Try again: {question}", description="what the model is told; {question} is the question")

        @field_validator("message")
        @classmethod
        def _only_the_question(cls, message: str) -> str:
            if not message.replace("{question}", "").strip():
                raise ValueError("says nothing but the question; add a word that tells the model it was wrong")
            if unknown := [place for place in _PLACE.findall(message) if place != "{question}"]:
                raise ValueError(f"{unknown[0]} stands for nothing; {{question}} is all that is filled in")
            return message

    @property
    def keeps_rewards(self) -> bool:
        return bool(self.settings.share == 1)

    def reply(self, episode: Episode, text: str) -> str | None:
        if episode.scores[-1].reward >= self.settings.enough or episode.model_turns >= self.settings.tries:
            return None
        return str(self.settings.message).replace("{question}", episode.question)

    def worth(self, episode: Episode, score: Score) -> Score:
        share = self.settings.share ** (episode.model_turns - 1)
        return replace(score, reward=score.reward * share) if share != 1 else score
