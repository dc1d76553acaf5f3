"""Finding rules by name among the installed distributions, built-in rules included.

Rules register in the entry-point group `gmc.estimators`. Each is imported only when looked at, one by one, so a broken one
stops only whoever asks for it.
"""

import difflib
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.errors import (
    BrokenEstimatorError,
    DuplicateEstimatorError,
    EstimatorError,
    EstimatorSettingError,
    UnknownEstimatorError,
)
from gmc.estimators.normalizer import Normalizer
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
    if not isinstance(name, str):  # a settings file may hold a number here
        raise UnknownEstimatorError(f"no estimator is named {name!r}; a name is text. Found: {_where(points)}")
    if name not in points:
        close = difflib.get_close_matches(name, points, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UnknownEstimatorError(f"no estimator is named {name!r}.{hint} Found: {_where(points)}")
    return _load(points[name])


def build_estimator(name: str, settings: Mapping[str, Any] | None = None, *, path: str = "estimator") -> Estimator:
    """A rule with its settings. `path` is what the settings are called in error messages.

    A rule that wraps another takes `base` as a name, as {"name": ..., its settings}, or as only the base's settings.
    Raises what `load_estimator` raises, `EstimatorSettingError` naming the setting, the value given and what is allowed, and
    `BrokenEstimatorError` when the rule cannot be built from settings that it allows.
    """
    rule = load_estimator(name)
    try:
        estimator = rule(rule.Settings(**dict(settings or {})))
        _require_declarations(estimator)
    except ValidationError as error:
        raise EstimatorSettingError(explain_settings_error(rule, error, path)) from error
    except EstimatorError:  # of the base of a rule that wraps another
        raise
    except Exception as error:  # a plugin's constructor can fail in any way; its cause is kept and named
        where = f"{path}: estimator {name} ({origin(rule)})"
        raise BrokenEstimatorError(
            f"{where} cannot be built: {in_one_line(error)}. "
            "Run gmc.testing.check_estimator on the rule, or report this to its package"
        ) from error
    return estimator


def origin(rule: type[Estimator]) -> str:
    """Where a rule comes from: its package and version, or its module when none registers it."""
    for point in _entry_points().get(rule.name, ()):
        if point.module.split(".")[0] == rule.__module__.split(".")[0]:
            return f"package {_distribution(point)}"
    return f"module {rule.__module__}"


def in_one_line(error: Exception) -> str:
    """Type and text of someone else's error, on one line and of bounded length."""
    return textwrap.shorten(f"{type(error).__name__}: {error}".rstrip(": "), 300, placeholder=" …")


def _require_declarations(estimator: Estimator) -> None:
    needs, lag = estimator.needs, estimator.anchor_lag
    if not isinstance(needs, set | frozenset) or not all(isinstance(need, Need) for need in needs):
        raise TypeError(f"needs is {needs!r}, not a set of Need")
    if not isinstance(estimator.normalizer, Normalizer):
        raise TypeError(f"normalizer is {estimator.normalizer!r}, not a Normalizer")
    if not isinstance(lag, int) or lag < 0:
        raise TypeError(f"anchor_lag is {lag!r}, not a whole number of at least 0")


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
