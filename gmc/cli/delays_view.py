"""How the list of delays and one delay's page look on a terminal and as JSON."""

import inspect
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gmc.cli.plugin_view import plugin_tables, unwrapped
from gmc.delays.base import DelayModel
from gmc.registry import Plugin


def list_record(plugin: Plugin[DelayModel]) -> dict[str, Any]:
    """One delay of the list as JSON."""
    record = {"name": plugin.name, "distribution": plugin.distribution, "value": plugin.value, "error": plugin.error}
    if plugin.cls is None:
        return record
    return {**record, "usage": plugin.cls.usage, "summary": plugin.cls.summary}


def list_view(plugins: Sequence[Plugin[DelayModel]]) -> Group:
    """One row a delay: name, an example, one line; a table for each distribution, gmc's own first."""
    tables = plugin_tables(plugins, {"delay": {}, "example": {"no_wrap": True}, "what is used when": {"ratio": 1}}, _list_row)
    return Group(*tables, Text("Details: gmc delays show NAME", style="dim"))


def _list_row(plugin: Plugin[DelayModel]) -> list[str | Text]:
    if plugin.cls is None:
        return [Text("broken", style="red"), Text(plugin.error or "")]
    return [Text(plugin.cls.examples[-1]), Text(plugin.cls.summary)]


def show_record(delay: type[DelayModel]) -> dict[str, Any]:
    """One delay's page as JSON."""
    return {
        "name": delay.name,
        "summary": delay.summary,
        "usage": delay.usage,
        "examples": list(delay.examples),
        "generates": delay.generates,
        "needs_existing_shards": delay.needs_existing_shards,
        "live": delay.live,
        "code": f"{delay.__module__}:{delay.__name__}",
        "description": inspect.cleandoc(delay.__doc__ or ""),
    }


def show_view(delay: type[DelayModel]) -> Group:
    """One delay's page for a terminal."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("usage", Text(f"--delay {delay.usage}"))
    facts.add_row("examples", Text(", ".join(delay.examples)))
    facts.add_row("rollouts", "made by gmc rollout --follow" if delay.live else _rollouts(delay))
    facts.add_row("code", f"{delay.__module__}:{delay.__name__}")
    description = unwrapped(inspect.cleandoc(delay.__doc__ or ""))
    return Group(Text(f"{delay.name}: {delay.summary}", style="bold"), Padding(Text(description), (1, 0)), facts)


def _rollouts(delay: type[DelayModel]) -> str:
    return "generated in training" if delay.generates else "those on disk, none is generated"
