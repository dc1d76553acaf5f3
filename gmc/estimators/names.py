"""Names of rules, checked where nothing is to be imported: a rule's module brings torch, which takes seconds."""

from collections.abc import Iterable

from gmc.estimators.errors import DuplicateEstimatorError, UnknownEstimatorError
from gmc.registry import Registry

GROUP = "gmc.estimators"

_NAMES: Registry[object] = Registry(
    GROUP, object, "estimator", unknown=UnknownEstimatorError, duplicate=DuplicateEstimatorError
)


def require_estimators(texts: Iterable[str]) -> None:
    """Raise what `load_estimator` raises for a name that is unknown or registered twice. texts: NAME or NAME:KEY=VALUE."""
    for text in texts:
        _NAMES.require(text.partition(":")[0])
