"""How the list of delays and one delay's page look on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from gmc.cli import plugin_view
from gmc.delays.base import DelayModel
from gmc.registry import Plugin

CLOCK = "The clock: a batch is launched every update, its groups are ready after a time, updates take those ready first"
"""What summaries of delays that begin with these words mean."""


def list_record(plugin: Plugin[DelayModel]) -> dict[str, Any]:
    """One delay of the list as JSON."""
    return plugin_view.list_record(plugin, ("usage", "summary"))


def list_view(plugins: Sequence[Plugin[DelayModel]]) -> Group:
    """One row a delay: name, an example, one line."""
    columns: dict[str, dict[str, Any]] = {"delay": {}, "example": {"no_wrap": True}, "what is used when": {"ratio": 1}}
    return plugin_view.list_view(plugins, columns, _list_row, f"{CLOCK}. Details: gmc delays show NAME")


def _list_row(delay: type[DelayModel]) -> list[str | Text]:
    return [Text(delay.examples[-1]), Text(delay.summary)]


def show_record(delay: type[DelayModel]) -> dict[str, Any]:
    """One delay's page as JSON."""
    names = ("usage", "generates", "needs_existing_shards", "live")
    return plugin_view.page_record(delay, {name: getattr(delay, name) for name in names} | {"examples": list(delay.examples)})


def show_view(delay: type[DelayModel]) -> Group:
    """One delay's page for a terminal."""
    facts = {
        "usage": f"--delay {delay.usage}",
        "examples": ", ".join(delay.examples),
        "rollouts": "made by gmc rollout --follow" if delay.live else _rollouts(delay),
    }
    if delay.summary.startswith("the clock"):
        facts["the clock"] = CLOCK.partition(": ")[2]
    return plugin_view.page_view(show_record(delay), facts)


def _rollouts(delay: type[DelayModel]) -> str:
    return "generated in training" if delay.generates else "those on disk, none is generated"
