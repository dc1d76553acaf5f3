"""How lists and pages of plug-ins look on a terminal and as JSON."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gmc.cli.help import filled
from gmc.config.fields import allowed_values, default_text
from gmc.registry import Plugin

T = TypeVar("T")


def list_record(plugin: Plugin[Any], facts: Sequence[str]) -> dict[str, Any]:
    """One plug-in of a list as JSON. facts: attributes of its class."""
    record = {"name": plugin.name, "distribution": plugin.distribution, "value": plugin.value, "error": plugin.error}
    return record if plugin.cls is None else {**record, **{fact: getattr(plugin.cls, fact) for fact in facts}}


def list_view(
    plugins: Sequence[Plugin[T]],
    columns: Mapping[str, Mapping[str, Any]],
    row: Callable[[type[T]], Sequence[str | Text]],
    hint: str,
) -> Group:
    """One row a plug-in, a table for each distribution, gmc's own first; a hint below.

    columns: title and rich's options, the name first; row: the cells behind the name, for one that could be loaded.
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
            if plugin.cls is not None:
                table.add_row(Text(plugin.name), *row(plugin.cls))
                continue
            empty = [Text()] * (len(columns) - 3)
            table.add_row(Text(plugin.name, style="red"), Text("broken", style="red"), *empty, Text(plugin.error or ""))
        parts += [Text(f"from {owner}", style="dim"), table]
    return Group(*parts, Text(hint, style="dim"))


def page_record(cls: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A plug-in's page as JSON: the facts, between what every class has."""
    tail = {"code": f"{cls.__module__}:{cls.__name__}", "description": inspect.cleandoc(cls.__doc__ or "")}
    return {"name": cls.name, "summary": cls.summary, **facts, **tail}


def page_view(record: Mapping[str, Any], facts: Mapping[str, str], *below: RenderableType) -> Group:
    """A plug-in's page for a terminal. record: as `page_record` gives it; facts: what stands at which word."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for word, fact in {**facts, "code": record["code"]}.items():
        table.add_row(word, Text(fact))
    title = Text(f"{record['name']}: {record['summary']}", style="bold")
    return Group(title, Padding(Text(filled(record["description"])), (1, 0)), table, *below)


def call_text(record: Mapping[str, Any]) -> str:
    """How a plug-in is written with its settings: `name(setting=…)`, or its name where it has none."""
    given = ", ".join(f"{setting['name']}=…" for setting in record["settings"])
    return f"{record['name']}({given})" if given else str(record["name"])


def settings_record(settings: type[BaseModel]) -> list[dict[str, Any]]:
    """What a plug-in's settings are, one record each."""
    return [
        {"name": name, "default": _default(field), "allowed": allowed_values(field), "meaning": field.description}
        for name, field in settings.model_fields.items()
    ]


def _default(field: FieldInfo) -> str:
    return "none, must be given" if field.is_required() else default_text(field)


def settings_tables(settings: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The same for a terminal; nothing where there are none."""
    if not settings:
        return []
    table = Table(box=None, pad_edge=False, padding=(1, 2, 0, 0))
    for title in ("setting", "default", "allowed", "meaning"):
        table.add_column(title, overflow="fold")
    for setting in settings:
        table.add_row(*(Text(str(setting[key])) for key in ("name", "default", "allowed", "meaning")))
    return [table]
