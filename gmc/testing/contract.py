"""`check_estimator`: everything a correction rule must satisfy, in one call."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gmc.estimators.base import Estimator
from gmc.testing import declared, invariance, robust
from gmc.testing.rule import Rule

T = TypeVar("T")

CHECKS: dict[str, Callable[[Rule], None]] = {
    "declarations": declared.check_declarations,
    "settings": declared.check_settings,
    "needs": declared.check_needs,
    "on-policy weight": declared.check_on_policy_weight,
    "scope": declared.check_scope,
    "padding": invariance.check_padding,
    "row order": invariance.check_row_order,
    "group order": invariance.check_group_order,
    "micro-batch split": invariance.check_split,
    "extreme ratios": robust.check_extreme_ratios,
    "empty responses": robust.check_empty_responses,
    "equal rewards": robust.check_equal_rewards,
    "state": robust.check_state,
    "metrics": robust.check_metrics,
}


def check_estimator(rule: type[Estimator], settings: Mapping[str, Any] | None = None) -> None:
    """Check a rule against the contract of `gmc.estimators.base`, without a model, in about a second.

    It checks: the declarations and settings; that declared needs are enough, all read, and nothing else is; the declared
    on-policy weight and scope; that padding, row order, group order and splitting the batch change nothing; that log-ratios
    of ±800 give finite gradients, below e^20 where the rule is declared unbounded; that empty responses are harmless and groups
    of equal rewards give exactly zero where declared; that state survives a round trip; and that metrics are finite.

    settings: those under test, by name; default the rule's own. Raises `AssertionError` listing every check that failed.
    """
    run_checks(
        CHECKS, Rule(rule, dict(settings or {})), f"{getattr(rule, 'name', rule.__name__)} breaks the estimator contract"
    )


def run_checks(checks: Mapping[str, Callable[[T], None]], subject: T, verdict: str) -> None:
    """Run every check by its title. Raises `AssertionError`, which begins with the verdict and lists those that failed."""
    failures = []
    for title, check in checks.items():
        try:
            check(subject)
        except Exception as error:  # whatever a plug-in raises is a finding; all are reported together below
            failures.append(f"{title}: {error if isinstance(error, AssertionError) else f'{type(error).__name__}: {error}'}")
    if failures:
        listing = "\n".join(f"  - {failure}" for failure in failures)
        raise AssertionError(f"{verdict}:\n{listing}")
