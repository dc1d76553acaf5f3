"""How lists of plug-ins look on a terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gmc.config.fields import allowed_values, default_text
from gmc.registry import Plugin

T = TypeVar("T")


def plugin_tables(
    plugins: Sequence[Plugin[T]], columns: Mapping[str, Mapping[str, Any]], row: Callable[[Plugin[T]], Sequence[str | Text]]
) -> list[RenderableType]:
    """One row a plug-in, a table for each distribution, gmc's own first.

    columns: title and rich's options, the name first; row: the cells behind the name.
    """
    parts: list[RenderableType] = []
    width = max((len(plugin.name) for plugin in plugins), default=0)
    owners = {plugin.distribution for plugin in plugins}
    for owner in sorted(owners, key=lambda owner: (not owner.startswith("gmc-rl "), owner)):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=not parts)
        for number, (title, options) in enumerate(columns.items()):
            first: dict[str, Any] = {"style": "bold", "min_width": width, "no_wrap": True} if number == 0 else {}
            table.add_column(title, **first, **options)
        for plugin in (plugin for plugin in plugins if plugin.distribution == owner):
            table.add_row(Text(plugin.name, style="red" if plugin.cls is None else ""), *row(plugin))
        parts += [Text(f"from {owner}", style="dim"), table]
    return parts


def unwrapped(text: str) -> str:
    """Paragraphs of a docstring as single lines, so that the terminal wraps them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def settings_record(settings: type[BaseModel]) -> list[dict[str, Any]]:
    """What a plug-in's settings are, one record each."""
    return [
        {"name": name, "default": _default(field), "allowed": allowed_values(field), "meaning": field.description}
        for name, field in settings.model_fields.items()
    ]


def _default(field: FieldInfo) -> str:
    return "none, must be given" if field.is_required() else default_text(field)


def settings_table(settings: Sequence[Mapping[str, Any]]) -> Table:
    """The same for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(1, 2, 0, 0))
    for title in ("setting", "default", "allowed", "meaning"):
        table.add_column(title, overflow="fold")
    for setting in settings:
        table.add_row(*(Text(str(setting[key])) for key in ("name", "default", "allowed", "meaning")))
    return table
