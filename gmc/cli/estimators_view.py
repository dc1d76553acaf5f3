"""How the list of rules and one rule's page look on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gmc.cli import plugin_view
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.registry import Found
from gmc.estimators.setting_docs import describe_settings

SCOPE = {"min_width": len("sequence"), "no_wrap": True}
NEEDS = {"min_width": 14, "max_width": 14}


def list_record(found: Found) -> dict[str, Any]:
    """One rule of the list as JSON."""
    record: dict[str, Any] = {"name": found.name, "distribution": found.distribution, "value": found.value}
    if found.estimator is None:
        return {**record, "error": found.error}
    rule = found.estimator()
    return {**record, "scope": rule.scope, "needs": _needs(rule), "summary": rule.summary, "error": None}


def list_view(found: Sequence[Found]) -> Group:
    """One row a rule: name, scope, needs, one line."""
    columns: dict[str, dict[str, Any]] = {"rule": {}, "scope": SCOPE, "needs": NEEDS, "what it does": {"ratio": 1}}
    hint = "μ: log-probs of the behavior policy. Details: gmc estimators show NAME"
    return plugin_view.list_view(found, columns, _list_row, hint)


def _list_row(estimator: type[Estimator]) -> list[str | Text]:
    rule = estimator()
    needs = ", ".join(_needs(rule)).replace(Need.BEHAVIOR_LOGP.value, "μ") or "nothing"
    return [rule.scope, Text(needs), Text(rule.summary)]


def show_record(rule: type[Estimator]) -> dict[str, Any]:
    """One rule's page as JSON."""
    instance = rule()
    facts = {
        "formula": rule.formula,
        "settings": [vars(setting) for setting in describe_settings(rule)],
        "scope": instance.scope,
        "needs": _needs(instance),
        "normalizer": str(instance.normalizer),
        "on_policy_weight": instance.on_policy_weight,
        "bounded": instance.bounded,
        "equal_rewards_vanish": instance.equal_rewards_vanish,
        "reference": rule.reference,
        "evidence": rule.evidence,
    }
    return plugin_view.page_record(rule, facts)


def show_view(rule: type[Estimator]) -> Group:
    """One rule's page for a terminal."""
    record = show_record(rule)
    facts = {
        "formula": record["formula"],
        "scope": record["scope"],
        "needs": ", ".join(record["needs"]) or "nothing",
        "normalizer": record["normalizer"],
        "weights": _weights(record),
        "reference": record["reference"],
        "evidence": record["evidence"] or "not stated",
    }
    return plugin_view.page_view(record, facts, Text(), _settings_table(rule))


def _settings_table(rule: type[Estimator]) -> Table | Text:
    settings = describe_settings(rule)
    if not settings:
        return Text("It has no settings.")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("setting (--set estimator.…)", style="bold", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("allowed", max_width=20)
    table.add_column("meaning", ratio=1)
    for setting in settings:
        table.add_row(setting.name, Text(setting.default), Text(setting.allowed), Text(setting.description))
    return table


def _weights(record: dict[str, Any]) -> str:
    bounded = "bounded" if record["bounded"] else "unbounded (log-ratios clamped at ±20)"
    vanish = "" if record["equal_rewards_vanish"] else "; groups of equal rewards still contribute"
    return f"{bounded}; {record['on_policy_weight']:g} times the advantage on-policy{vanish}"


def _needs(rule: Estimator) -> list[str]:
    return [need.value for need in Need if need in rule.needs]
