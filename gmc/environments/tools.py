"""The model may call functions in the middle of what it writes; the result is written behind the call."""

from typing import Self

from pydantic import Field, model_validator

from gmc.environments.base import Environment, EnvironmentSettings, Episode
from gmc.environments.calculator import CalculationError, calculate
from gmc.problems.base import Problem


class Tools(Environment):
    """Answers a call such as <tool>3*(4+5)</tool> with <result>27</result>, right behind it, and the model goes on writing.

    The tool is a calculator (`gmc.environments.calculator`). What cannot be calculated is answered with the reason, as in
    <result>error: division by zero</result>. The question is followed by `explain`, which tells the model what it may write;
    nothing is added where it is empty. An episode ends with the first turn that ends without a call. The reward sees the last
    turn: what the model wrote after the last result.
    """

    name = "tools"
    summary = "the model may call a calculator in the middle of its response"
    inline = True
    role = "tool"

    class Settings(EnvironmentSettings):
        """calls, tag, result, explain: see their descriptions."""

        calls: int = Field(8, ge=1, description="calls that are answered in one response; the next one ends it")
        tag: str = Field("tool", pattern=r"^[A-Za-z_][\w-]*$", description="a call is written <tag>…</tag>")
        result: str = Field("result", pattern=r"^[A-Za-z_][\w-]*$", description="its result is written <result>…</result>")
        explain: str = Field(
            "To calculate, write <{tag}>3*(4+5)</{tag}>; the result follows as <{result}>27</{result}>.",
            description="what is added to every question; {tag} and {result} are the tags",
        )

        @model_validator(mode="after")
        def _two_tags(self) -> Self:
            if self.tag == self.result:
                raise ValueError(f"tag and result are both {self.tag!r}; a result must not look like a call")
            return self

    @property
    def stop(self) -> tuple[str, ...]:
        return (f"</{self.settings.tag}>",)

    def start(self, problem: Problem) -> Episode:
        words = {"tag": self.settings.tag, "result": self.settings.result}
        explained = str(self.settings.explain)
        for word, value in words.items():
            explained = explained.replace(f"{{{word}}}", value)
        return Episode(problem, f"{problem.question}\n{explained}" if explained else problem.question)

    def reply(self, episode: Episode, text: str) -> str | None:
        opened, closed = f"<{self.settings.tag}>", self.stop[0]
        before, called, _ = text.rpartition(closed)  # the token that closes a call may hold more than that
        if not called or episode.model_turns > self.settings.calls:
            return None
        _, found, call = before.rpartition(opened)
        if not found:
            return f"<{self.settings.result}>error: no {opened} before {closed}</{self.settings.result}>"
        try:
            answer = calculate(call)
        except CalculationError as error:
            answer = f"error: {error}"
        return f"<{self.settings.result}>{answer}</{self.settings.result}>"
