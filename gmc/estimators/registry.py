"""Finding rules by name among the installed distributions, built-in rules included.

Rules register in the entry-point group `gmc.estimators`. Each is imported only when looked at, one by one, so a broken one
stops only whoever asks for it.
"""

import difflib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from gmc.estimators.base import Estimator
from gmc.estimators.errors import (
    BrokenEstimatorError,
    DuplicateEstimatorError,
    EstimatorError,
    EstimatorSettingError,
    UnknownEstimatorError,
)
from gmc.estimators.setting_docs import explain_settings_error

GROUP = "gmc.estimators"


@dataclass(frozen=True)
class Found:
    """One registered rule: the class, or the reason why it cannot be used.

    name: on the command line. distribution: name and version of the package that registers it. value: "module:Class".
    """

    name: str
    distribution: str
    value: str
    estimator: type[Estimator] | None
    error: str | None


def list_estimators() -> list[Found]:
    """Every registered rule by name, each imported on its own. A broken one is listed with its cause."""
    found = []
    for points in _entry_points().values():
        for point in points:
            estimator, error = None, None
            try:
                estimator = _load(points)
            except EstimatorError as problem:
                error = str(problem)
            found.append(Found(point.name, _distribution(point), point.value, estimator, error))
    return found


def load_estimator(name: str) -> type[Estimator]:
    """The class registered as `name`.

    Raises `UnknownEstimatorError` (listing what was found and where), `DuplicateEstimatorError` (naming both
    distributions) or `BrokenEstimatorError` (with the import's own error as its cause).
    """
    points = _entry_points()
    if name not in points:
        close = difflib.get_close_matches(name, points, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UnknownEstimatorError(f"no estimator is named {name!r}.{hint} Found: {_where(points)}")
    return _load(points[name])


def build_estimator(name: str, settings: Mapping[str, Any] | None = None, *, path: str = "estimator") -> Estimator:
    """A rule with its settings. `path` is what the settings are called in error messages.

    A rule that wraps another takes `base` as a name, as {"name": ..., its settings}, or as only the base's settings.
    Raises what `load_estimator` raises, and `EstimatorSettingError` naming the setting, the value given and what is allowed.
    """
    rule = load_estimator(name)
    try:
        validated = rule.Settings(**dict(settings or {}))
    except ValidationError as error:
        raise EstimatorSettingError(explain_settings_error(rule, error, path)) from error
    return rule(validated)


def _entry_points() -> dict[str, list[EntryPoint]]:
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=GROUP):
        by_name[point.name].append(point)
    return dict(sorted(by_name.items()))


def _load(points: list[EntryPoint]) -> type[Estimator]:
    first = points[0]
    if len(points) > 1:
        owners = " and ".join(sorted(_distribution(point) for point in points))
        raise DuplicateEstimatorError(f"estimator {first.name!r} is registered by {owners}; uninstall one of them")
    where = f"estimator {first.name!r} of {_distribution(first)} ({first.value})"
    try:
        rule = first.load()
    except Exception as error:  # a plugin's import can fail in any way; its cause is kept and named
        raise BrokenEstimatorError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(rule, type) and issubclass(rule, Estimator)):
        raise BrokenEstimatorError(f"{where} is not a subclass of gmc.estimators.base.Estimator")
    if getattr(rule, "name", None) != first.name:
        raise BrokenEstimatorError(f"{where} calls itself {getattr(rule, 'name', None)!r}; both names must agree")
    return rule


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed distribution"


def _where(points: Mapping[str, list[EntryPoint]]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for same in points.values():
        for point in same:
            names[_distribution(point)].append(point.name)
    if not names:
        return f"nothing (no installed distribution has entry points in the group {GROUP!r}; reinstall gmc)."
    return "; ".join(f"{', '.join(rules)} (from {owner})" for owner, rules in sorted(names.items())) + "."
