"""The model may call functions in the middle of what it writes; the result is written behind the call."""

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from gmc.environments.base import Environment, EnvironmentSettings, Episode
from gmc.environments.calculator import CalculationError, calculate
from gmc.environments.functions import Place, ToolFunctions
from gmc.problems.base import Problem

CALCULATOR = "To calculate, write <{tag}>3*(4+5)</{tag}>; the result follows as <{result}>27</{result}>."
FUNCTIONS = (
    "You may call these functions by writing <{tag}>name(arguments)</{tag}>; the result follows as <{result}>…</{result}>.\n"
    "{functions}"
)


class Tools(Environment):
    """Answers a call such as <tool>3*(4+5)</tool> with <result>27</result>, right behind it, and the model goes on writing.

    The tool is a calculator (`gmc.environments.calculator`), or the Python functions of a file or module: the model is told
    their signatures and docstrings, and calls them as <tool>name(1, b="x")</tool> or
    <tool>{"name": …, "arguments": {…}}</tool>, with plain values. They run in a process of their own. What gives no result is
    answered with the reason, as in <result>error: ZeroDivisionError: division by zero</result>. The question is followed by
    `explain`, which tells the model what it may write; nothing is added where it is empty. An episode ends with the first turn
    that ends without a call. The reward sees the last turn: what the model wrote after the last result.
    """

    name = "tools"
    summary = "the model may call a calculator, or your Python functions, in the middle of its response"
    inline = True
    role = "tool"

    class Settings(EnvironmentSettings):
        """See the fields' descriptions."""

        functions: str = Field(
            "", description="FILE.py or MODULE of Python functions, some of them as FILE.py:one,two; empty: a calculator"
        )
        calls: int = Field(8, ge=1, description="calls that are answered in one response; the next one ends it")
        tag: str = Field("tool", pattern=r"^[A-Za-z_][\w-]*$", description="a call is written <tag>…</tag>")
        result: str = Field("result", pattern=r"^[A-Za-z_][\w-]*$", description="its result is written <result>…</result>")
        explain: str = Field(
            CALCULATOR,
            description="what is added to every question; {tag} and {result} are the tags, {functions} a line a function; with "
            "functions the default lists them",
        )
        seconds: float = Field(5.0, gt=0, description="how long one call of a function may take")
        characters: int = Field(1000, ge=1, description="characters of a function's result that the model is told")

        @model_validator(mode="before")
        @classmethod
        def _explained(cls, given: Any) -> Any:
            return {"explain": FUNCTIONS, **given} if isinstance(given, dict) and given.get("functions") else given

        @field_validator("functions")
        @classmethod
        def _place(cls, functions: str) -> str:
            return str(Place.parse(functions)) if functions else functions

        @model_validator(mode="after")
        def _two_tags(self) -> Self:
            if self.tag == self.result:
                raise ValueError(f"tag and result are both {self.tag!r}; a result must not look like a call")
            return self

    def __init__(self, settings: EnvironmentSettings | None = None) -> None:
        super().__init__(settings)
        self._functions: ToolFunctions | None = None
        if self.settings.functions:
            self._functions = ToolFunctions(
                Place.parse(self.settings.functions), seconds=self.settings.seconds, characters=self.settings.characters
            )

    @property
    def stop(self) -> tuple[str, ...]:
        return (f"</{self.settings.tag}>",)

    @property
    def files(self) -> tuple[str, ...]:
        place = Place.parse(self.settings.functions) if self.settings.functions else None
        return (place.target,) if place is not None and place.is_file else ()

    def completed(self) -> EnvironmentSettings:
        if not self.settings.functions:
            return super().completed()
        place = Place.parse(self.settings.functions).resolved()
        return self.Settings(**{**self.settings.model_dump(), "functions": str(place)})

    def start(self, problem: Problem) -> Episode:
        words = {"tag": self.settings.tag, "result": self.settings.result}
        if self._functions is not None:
            words["functions"] = self._functions.described()
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
        answer = self._answer(call) if found else f"error: no {opened} before {closed}"
        return f"<{self.settings.result}>{answer}</{self.settings.result}>"

    def close(self) -> None:
        if self._functions is not None:
            self._functions.close()

    def _answer(self, call: str) -> str:
        if self._functions is not None:
            return self._functions.call(call)
        try:
            return calculate(call)
        except CalculationError as error:
            return f"error: {error}"
