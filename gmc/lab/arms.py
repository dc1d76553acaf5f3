"""Rules with settings, as a study lists them: each is one arm."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gmc.config.layers import parse_assignment
from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.composition import ComposedEstimator
from gmc.estimators.registry import build_estimator, list_estimators


@dataclass(frozen=True)
class Arm:
    """A rule by name, and the settings that differ from its defaults, in the order given."""

    rule: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The rule, and its settings behind it: "tic epsilon=3"."""
        return " ".join([self.rule, *(f"{key}={value}" for key, value in self.settings)])

    def build(self) -> Estimator:
        """A fresh rule. Raises `UsageError` when it is unknown, broken or a setting is refused."""
        return build_estimator(self.rule, dict(self.settings))

    @classmethod
    def parse(cls, text: str) -> "Arm":
        """An arm as on the command line.

        >>> Arm.parse("tic:epsilon=3").label
        'tic epsilon=3'
        """
        rule, _, rest = text.partition(":")
        settings: dict[str, Any] = {}
        for assignment in filter(None, rest.split(",")):
            settings |= parse_assignment(assignment)
        return cls(rule, tuple(settings.items()))


def arms_of(rules: Mapping[str, Mapping[str, Any]]) -> list[Arm]:
    """Every combination of the listed settings of each rule; a list is an axis, anything else one value.

    >>> [arm.label for arm in arms_of({"is": {}, "gmc": {"epsilon": [0.1, 0.28]}})]
    ['is', 'gmc epsilon=0.1', 'gmc epsilon=0.28']
    """
    arms = []
    for rule, settings in rules.items():
        axes = [
            [(key, value) for value in (values if isinstance(values, list) else [values])] for key, values in settings.items()
        ]
        arms += [Arm(rule, combination) for combination in itertools.product(*axes)]
    return arms


def installed_arms() -> list[Arm]:
    """One arm a rule that is installed and can be imported, with its default settings."""
    return [Arm(found.name) for found in list_estimators() if found.estimator is not None]


def acts_on_gradient(rule: Estimator) -> bool:
    """Whether a rule, or the one that it wraps, has a stage 3 of its own."""
    return _overrides(rule, "gradient")


def acts_on_rate(rule: Estimator) -> bool:
    """Whether a rule, or the one that it wraps, has a stage 4 of its own."""
    return _overrides(rule, "learning_rate_scale")


def _overrides(rule: Estimator, stage: str) -> bool:
    own = getattr(type(rule), stage)
    if isinstance(rule, ComposedEstimator) and own in (getattr(ComposedEstimator, stage), getattr(Estimator, stage)):
        return _overrides(rule.base, stage)
    return own is not getattr(Estimator, stage)


def require_unique(arms: Sequence[Arm]) -> None:
    """Raise `UsageError` when two arms are the same."""
    labels = [arm.label for arm in arms]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UsageError(f"{twice[0]} is listed twice; list each arm once")
