"""What a person sees: stderr for people, stdout for machines."""

import logging
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w
import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gmc.cli.streams import shown
from gmc.config.layers import RUN
from gmc.config.recipes import recipes_directory
from gmc.config.settings import RunSettings, settings_tree
from gmc.errors import one_line
from gmc.store.files import strict_json

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C stopped; `main` turns it into the signal itself."""


class PlainConsole(Console):
    """A console that writes out control characters in what it shows: ids, names and texts come from strangers' files."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render without anything that steers the terminal but rich's own codes; off a terminal without blanks at line ends."""
        made = (
            segment if segment.control else segment._replace(text=shown(segment.text))
            for segment in super().render(renderable, options)
        )
        return made if self.is_terminal else _without_padding(made)

    def say(self, line: str | Text, hanging: int = 0) -> None:
        """Print one line of prose. A terminal shows it broken between words, which it would not do itself; elsewhere it stays
        one line. hanging: columns that what follows the first break is moved in by."""
        text = Text(line) if isinstance(line, str) else line
        self.print(in_words(text, self.width, hanging) if self.is_terminal else text, soft_wrap=True)

    def say_rows(self, rows: Mapping[str, str]) -> None:
        """Print names and what each is, side by side; what is long or of several lines stays in its column."""
        name_width = max((cell_len(name) for name in rows), default=0) + 2
        for name, value in rows.items():
            for number, line in enumerate(value.split("\n")):
                first = "" if number else name
                self.say(f"{first}{' ' * (name_width - cell_len(first))}{line}".rstrip(" "), hanging=name_width)


def in_words(text: Text, width: int, hanging: int = 0) -> Text:
    r"""A line as lines of at most so many columns, broken between words. Words longer than a line stay whole: paths are copied.

    >>> in_words(Text("go on with: gmc train --resume"), 14, 2).plain
    'go on with:\n  gmc train\n  --resume'
    """
    breaks: list[int] = []
    used = 0
    for word in re.finditer(r" *[^ ]+", text.plain):
        length = cell_len(word[0])
        if word.start() > 0 and used + length > width:
            bare = word[0].lstrip(" ")
            breaks.append(word.end() - len(bare))
            used, length = hanging, cell_len(bare)
        used += length
    lines = text.divide(breaks)
    for line in lines:
        line.rstrip()
    for line in lines[1:]:
        line.pad_left(hanging)
    return Text("\n").join(lines)


def _without_padding(segments: Iterable[Segment]) -> Iterator[Segment]:
    """The segments without the blanks that stand before a line's end. Tables pad their cells, which only a terminal hides."""
    blank = ""
    for segment in segments:
        if segment.control:
            yield segment
            continue
        for part in re.split(r"(\n)", segment.text):
            if part == "\n":
                blank = ""
                yield segment._replace(text=part)
            elif part:
                text = blank + part
                kept = text.rstrip(" ")
                blank = text[len(kept) :]
                if kept:
                    yield segment._replace(text=kept)
    if blank:
        yield Segment(blank)


stderr = PlainConsole(stderr=True, highlight=False)

RECIPE = "recipe "
"""How the origin of a value begins that a recipe says; its path follows."""

QUIET, NORMAL, VERBOSE = logging.WARNING, logging.INFO, logging.DEBUG
_level = NORMAL


def talk(level: int) -> None:
    """How much is written for people from now on: QUIET, NORMAL or VERBOSE, by the levels of `logging`."""
    global _level  # one process, one terminal
    _level = level


def level() -> int:
    """What `talk` said last."""
    return _level


def write_line(text: str) -> None:
    """One line for a person, on stderr, unless `--quiet`. Off a terminal, where lines become a log, with the time."""
    if _level < QUIET:
        stderr.say(stamped(one_line(text)))


def stamped(text: str) -> str:
    """The line with the time before it where it goes to no terminal, and nobody sees when it comes."""
    return text if stderr.is_terminal else f"{datetime.now():%H:%M:%S} {text}"


def print_error(text: str) -> None:
    """The one line of a failed command. Colored where the terminal and NO_COLOR allow it."""
    stderr.say(Text.assemble(("error:", "bold red"), f" {one_line(text)}"))


def print_json(record: Mapping[str, Any]) -> None:
    """The one JSON object of `--json`, on stdout."""
    line = re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", strict_json(dict(record)))  # JSON allows them raw
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # a full disk is met here, where it becomes one line


def print_settings(settings: RunSettings, *, as_json: bool) -> None:
    """The settings in force of `--dry-run`, on stdout: as JSON, or as TOML with the origin of each value behind it."""
    tree = settings_tree(settings)
    if as_json:
        print_json({**tree, "origins": dict(settings.origins), "hash": settings.hash})
    else:
        typer.echo(shown("\n".join([*_recipe_lines(settings.origins), *_lines(tree, _in_short(settings.origins), "")])))


def _recipe_names(origins: Mapping[str, str]) -> dict[str, str]:
    """Recipes by path: a name that stands for the path, which would be said of every value; none where two have one name."""
    paths = {origin.removeprefix(RUN) for origin in origins.values() if origin.removeprefix(RUN).startswith(RECIPE)}
    files = [Path(path.removeprefix(RECIPE)) for path in sorted(paths)]
    names = {str(file): file.stem if file.parent == recipes_directory() else file.name for file in files}
    return {path: name for path, name in names.items() if [*names.values()].count(name) == 1}


def _recipe_lines(origins: Mapping[str, str]) -> list[str]:
    return [f"# recipe {one_line(name)}: {one_line(path)}" for path, name in _recipe_names(origins).items() if name != path]


def _in_short(origins: Mapping[str, str]) -> dict[str, str]:
    names = _recipe_names(origins)
    short = {f"{RECIPE}{path}": f"{RECIPE}{one_line(name)}" for path, name in names.items()}
    short |= {RUN + long: RUN + name for long, name in short.items()}
    return {key: short.get(origin, origin) for key, origin in origins.items()}


def _lines(tree: Mapping[str, Any], origins: Mapping[str, str], prefix: str) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    lines = {key: f"{key} = {_toml(value)}" for key, value in tree.items() if key not in tables}
    width = max((len(line) for line in lines.values()), default=0)
    for key, line in lines.items():
        yield f"{line:<{width}}  # {origins[prefix + key]}"
    for key, table in tables.items():
        yield ""
        yield f"[{prefix}{key}]"
        yield from _lines(table, origins, f"{prefix}{key}.")


def _toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
