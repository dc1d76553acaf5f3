"""Finding rules by name among the installed distributions, built-in rules included, and building them.

Rules register in the entry-point group `gmc.estimators`; see `gmc.registry`.
"""

from collections.abc import Mapping
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
from gmc.estimators.names import GROUP
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.setting_docs import explain_settings_error
from gmc.registry import Plugin, Registry, in_one_line

_REGISTRY = Registry(
    GROUP,
    Estimator,  # type: ignore[type-abstract]
    "estimator",
    unknown=UnknownEstimatorError,
    duplicate=DuplicateEstimatorError,
    broken=BrokenEstimatorError,
)


class Found(Plugin[Estimator]):
    """One registered rule."""

    @property
    def estimator(self) -> type[Estimator] | None:
        """The rule's class, None when it is broken."""
        return self.cls


def list_estimators() -> list[Found]:
    """Every registered rule by name, each imported on its own. A broken one is listed with its cause."""
    return [Found(**vars(plugin)) for plugin in _REGISTRY.plugins()]


def load_estimator(name: str) -> type[Estimator]:
    """The class registered as `name`.

    Raises `UnknownEstimatorError` (listing what was found and where), `DuplicateEstimatorError` (naming both
    distributions) or `BrokenEstimatorError` (with the import's own error as its cause).
    """
    return _REGISTRY.load(name)


def origin(rule: type[Estimator]) -> str:
    """Where a rule comes from: its package and version, or its module when none registers it."""
    return _REGISTRY.origin(rule)


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


def _require_declarations(estimator: Estimator) -> None:
    needs, lag = estimator.needs, estimator.anchor_lag
    if not isinstance(needs, set | frozenset) or not all(isinstance(need, Need) for need in needs):
        raise TypeError(f"needs is {needs!r}, not a set of Need")
    if not isinstance(estimator.normalizer, Normalizer):
        raise TypeError(f"normalizer is {estimator.normalizer!r}, not a Normalizer")
    if not isinstance(lag, int) or lag < 0:
        raise TypeError(f"anchor_lag is {lag!r}, not a whole number of at least 0")
