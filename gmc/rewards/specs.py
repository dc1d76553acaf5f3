"""How a reward is written on the command line: a name or a function, its arguments, its weight.

math                                        a registered reward
length(max_tokens=64, cache=16)=0.5         with settings, and with a weight in the sum
rewards.py:short=0.2                        a function in a file
trl.rewards:get_soft_overlong_punishment(max_completion_len=64, soft_punish_cache=16)     what a factory gives
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gmc.errors import UsageError
from gmc.registry import plain_call

EXAMPLE = "write it as math, exact(ignore_case=True)=0.5 or rewards.py:function"
_SPEC = re.compile(r"(?P<target>[^()=]+)(?P<call>\(.*\))?(?:=(?P<weight>[^()=]+))?", re.DOTALL)


@dataclass(frozen=True)
class RewardSpec:
    """One reward of a sum, as it was asked for.

    target: a registered name, or FILE.py:FUNCTION or MODULE:FUNCTION. called: whether arguments were given, so that what
    stands behind a function's name is a factory; arguments, keywords: plain values.
    """

    target: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    called: bool = False
    weight: float = 1.0

    @property
    def is_function(self) -> bool:
        """Whether it names a function of somebody's and not a registered reward."""
        return ":" in self.target

    @property
    def place(self) -> str:
        """The file or module of a function."""
        return self.target.rpartition(":")[0]

    @property
    def attribute(self) -> str:
        """A function's name in its file or module."""
        return self.target.rpartition(":")[2]

    @property
    def is_file(self) -> bool:
        """Whether it names a function in a file."""
        return self.is_function and self.place.endswith(".py")

    @property
    def label(self) -> str:
        """A short name for tables and metrics."""
        return self.attribute if self.is_function else self.target

    @property
    def unweighted(self) -> str:
        """The spec without its weight."""
        given = [*map(repr, self.arguments), *(f"{key}={value!r}" for key, value in self.keywords.items())]
        return f"{self.target}({', '.join(given)})" if self.called or given else self.target

    def __str__(self) -> str:
        return self.unweighted if self.weight == 1 else f"{self.unweighted}={self.weight:g}"


def parse_reward(text: str) -> RewardSpec:
    """A reward as it was written. Raises `UsageError` that says what is wrong with it."""
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--reward {text}: {EXAMPLE}")
    target = match["target"].strip()
    place, colon, attribute = target.rpartition(":")
    if colon and not (place and attribute.isidentifier()):
        raise UsageError(f"--reward {text}: {attribute!r} is no function's name; {EXAMPLE}")
    arguments, keywords = _arguments(match["call"], text)
    spec = RewardSpec(target, arguments, keywords, match["call"] is not None, _weight(match["weight"], text))
    if spec.arguments and not spec.is_function:
        raise UsageError(f"--reward {text}: give the settings of {target} by name, as in {target}(name=value)")
    return spec


def _weight(text: str | None, spec: str) -> float:
    if text is None:
        return 1.0
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise UsageError(f"--reward {spec}: the weight {text.strip()!r} is no number; {EXAMPLE}")
    return weight


def _arguments(call: str | None, spec: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if call is None:
        return (), {}
    try:
        return plain_call(call)
    except ValueError as error:
        raise UsageError(
            f"--reward {spec}: what stands in the brackets must be plain Python values, as in (max_tokens=64, "
            f"words=['a', 'b']); {error}"
        ) from error


def labels(specs: Sequence[RewardSpec]) -> list[str]:
    """A name for each part, no two alike.

    >>> labels([parse_reward("math"), parse_reward("a.py:f"), parse_reward("b.py:f")])
    ['math', 'f', 'f-2']
    """
    names: list[str] = []
    for number, spec in enumerate(specs):
        before = sum(other.label == spec.label for other in specs[:number])
        names.append(f"{spec.label}-{before + 1}" if before else spec.label)
    return names


def with_keywords(spec: RewardSpec, keywords: Mapping[str, Any]) -> RewardSpec:
    """The spec with all its settings said."""
    return replace(spec, keywords=dict(keywords), called=bool(keywords))
