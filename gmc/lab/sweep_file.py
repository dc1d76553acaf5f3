"""A study as a TOML file: what all runs share, which settings vary, which seeds, what is chosen on which of them.

name = "caps"
seeds = [0, 1, 2]                       # of the verdict
[settings]                              # any setting, as in a recipe
delay = "ramp:64"
[axes]                                  # every combination is run; a list of tables varies settings together
optimizer.learning_rate = [2e-4, 4e-4]
[arms.gmc.axes]                         # the rule called gmc, unless its settings name another
estimator.epsilon = [0.28, 1.0]
[arms.grpo]
[select]                                # chosen on seeds of their own, before the verdict
seeds = [100, 101]
axes = ["optimizer.learning_rate", "estimator.epsilon"]
"""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gmc.config.file_kinds import SWEEP, require_file_of
from gmc.config.layers import flatten, read_toml
from gmc.errors import UsageError, plain_words

Count = Annotated[int, Field(ge=1)]
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Measure = Literal["final", "area"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NEEDED = {
    "name": 'name the study: name = "caps"',
    "seeds": "say on which seeds all arms are trained: seeds = [0, 1, 2]",
    "arms": "add a table [arms.gmc], one for each rule that is compared",
    "select.seeds": "say on which seeds is chosen, others than those of the verdict: seeds = [100, 101]",
    "select.axes": 'say which axes are chosen: axes = ["optimizer.learning_rate"]',
}
"""What a file cannot do without, and how it is said."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Varied(_Table):
    """Settings, and axes of them. axes: a setting's dotted key with its values, or any name with tables of settings."""

    settings: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, list[Any]] = Field(default_factory=dict)

    @field_validator("axes", mode="before")
    @classmethod
    def _dotted_lists(cls, axes: Any) -> Any:
        if not isinstance(axes, Mapping):
            return axes
        flat = dict(flatten(axes))
        for key, values in flat.items():
            if not isinstance(values, list) or not values:
                raise ValueError(f"{key} is a list of at least one value")
            if any(value in values[:place] for place, value in enumerate(values)):
                raise ValueError(f"{key} names a value twice")
        return flat


class Arm(_Varied):
    """[arms.NAME]: settings and axes of one arm. It trains with the rule NAME unless its settings name another.

    tuned: the arm of the sweep's `tuned` file whose chosen settings it takes; that of its own name unless another is named.
    """

    tuned: str | None = None


class Selection(_Table):
    """[select]: which axes are chosen, on which seeds, by the highest mean of which measure.

    settings: of these runs alone. final: score of the last policy; area: mean over the curve of scores.
    """

    seeds: Seeds
    axes: Annotated[list[str], Field(min_length=1)]
    measure: Measure = "final"
    settings: dict[str, Any] = Field(default_factory=dict)


class Verdict(_Varied):
    """[verdict]: settings and axes of the runs after the choice alone."""


class Curve(_Table):
    """[curve]: evaluation along the way, every so many updates; the sampling is otherwise that of [settings.eval]."""

    every: Count = 50
    samples: int = Field(1, ge=0)
    greedy: bool = False
    limit: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _asks_something(self) -> "Curve":
        if not self.samples and not self.greedy:
            raise ValueError("samples = 0 without greedy = true evaluates nothing")
        return self


class Compared(_Table):
    """[compare]: the declared family of comparisons, each in every setting of the other axes: all arms against the baseline, or
    pairs of arms.

    reach: accuracy for which the number of updates is reported.
    """

    baseline: str | None = None
    pairs: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default_factory=list)
    measures: Annotated[list[Measure], Field(min_length=1)] = Field(default_factory=lambda: list[Measure](["final"]))
    reach: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_way(self) -> "Compared":
        if (self.baseline is None) == (not self.pairs):
            raise ValueError("give a baseline or pairs, one of them")
        return self


class Sweep(_Varied):
    """The whole file. keep: whether run folders stay after their results are recorded.

    tuned: the results of another sweep, beside this file, whose choice gives the arms their settings; the seeds that it was
    tuned on are refused here.
    """

    name: str
    question: str = ""
    recipe: str | None = None
    seeds: Seeds
    arms: dict[str, Arm] = Field(min_length=1)
    select: Selection | None = None
    verdict: Verdict = Field(default_factory=Verdict)
    curve: Curve | None = None
    compare: Compared | None = None
    tuned: str | None = None
    keep: bool = True

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("a name is made of letters, digits, '.', '_' and '-'")
        return name

    @model_validator(mode="after")
    def _consistent(self) -> "Sweep":
        for what, seeds in (("seeds", self.seeds), ("select.seeds", self.select.seeds if self.select else [])):
            if len({*seeds}) < len(seeds):
                raise ValueError(f"{what} names a seed twice")
        if self.select:
            self._check_selection(self.select)
        if self.compare:
            for name in [self.compare.baseline, *(name for pair in self.compare.pairs for name in pair)]:
                if name is not None and name not in self.arms:
                    raise ValueError(f"compare names {name}, the arms are {', '.join(self.arms)}")
        if self.verdict != Verdict() and not self.select:
            raise ValueError("[verdict] follows a [select]; put settings and axes of all runs into [settings] and [axes]")
        return self

    def _check_selection(self, select: Selection) -> None:
        if shared := sorted({*self.seeds} & {*select.seeds}):
            raise ValueError(f"seed {shared[0]} is in seeds and in select.seeds; a verdict needs seeds that chose nothing")
        known = {*self.axes, *(key for arm in self.arms.values() for key in arm.axes)}
        for key in select.axes:
            if key not in known:
                raise ValueError(f"select.axes names {key}, which is no axis; there are {', '.join(sorted(known)) or 'none'}")
        if both := sorted({*self.verdict.axes} & known):
            raise ValueError(f"verdict.axes names {both[0]}, which is an axis of all runs already")
        if select.measure == "area" and self.curve is None:
            raise ValueError('select.measure = "area" needs a [curve]')


def read_sweep(path: Path) -> Sweep:
    """Read and check a sweep file. Raises `UsageError` in one line naming the file and the key."""
    try:
        content = read_toml(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; those that ship lie in recipes/lab of a checkout") from error
    require_file_of(SWEEP, content, path)
    return parse_sweep(content, str(path))


def parse_sweep(content: Mapping[str, Any], origin: str) -> Sweep:
    """A sweep from plain values. Raises `UsageError` naming the origin and the first wrong key."""
    try:
        return Sweep.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            names = [*Sweep.model_fields, *Selection.model_fields, *Curve.model_fields, *Compared.model_fields]
            near = difflib.get_close_matches(str(problem["loc"][-1]), names, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; settings of a run go into [settings]"
            raise UsageError(f"{origin}: unknown key {key}{hint}") from error
        if problem["type"] == "missing" or (key == "arms" and problem["type"] == "too_short"):
            raise UsageError(f"{origin}: {key} is missing; {NEEDED[key]}") from error
        message = plain_words(problem["msg"].removeprefix("Value error, "))
        raise UsageError(f"{origin}: {key + ': ' if key else ''}{message[0].lower()}{message[1:]}") from error
