"""What a shell offers after the Tab key: names of rules, delays, engines, recipes and runs."""

from collections.abc import Callable, Iterable
from pathlib import Path

Completion = Callable[[str], list[tuple[str, str]]]
"""From what is typed to (value, help) pairs."""


def _starting(typed: str, found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in found if name.startswith(typed)]


def complete_rules(incomplete: str) -> list[tuple[str, str]]:
    """Installed rules with their summaries."""
    from gmc.estimators.registry import list_estimators

    return _starting(incomplete, ((each.name, each.cls.summary) for each in list_estimators() if each.cls is not None))


def complete_delays(incomplete: str) -> list[tuple[str, str]]:
    """Installed delay models with their summaries."""
    from gmc.delays.registry import list_delays

    return _starting(incomplete, ((each.name, each.cls.summary) for each in list_delays() if each.cls is not None))


def complete_engines(incomplete: str) -> list[tuple[str, str]]:
    """Installed engines with their summaries."""
    from gmc.engines.registry import list_engines

    return _starting(incomplete, ((each.name, each.cls.summary) for each in list_engines() if each.cls is not None))


def complete_recipes(incomplete: str) -> list[tuple[str, str]]:
    """Shipped recipes."""
    from gmc.config.recipes import list_recipes

    return _starting(incomplete, ((name, "") for name in list_recipes()))


def complete_runs(incomplete: str) -> list[tuple[str, str]]:
    """Run directories in runs/, or in the folder that is typed."""
    from gmc.live.listing import find_runs

    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") else typed.parent if incomplete else Path("runs")
    return _starting(incomplete, ((str(path), "") for path in find_runs(folder)))


COMPLETIONS: dict[str, Completion] = {
    "estimator.name": complete_rules,
    "delay": complete_delays,
    "rollout.engine": complete_engines,
}
"""By the key of the setting."""
