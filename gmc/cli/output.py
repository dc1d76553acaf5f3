"""What a person sees: stderr for people, stdout for machines."""

import sys
from collections.abc import Mapping
from typing import Any

import tomli_w
import typer
from rich.console import Console

from gmc.config.settings import Settings, settings_tree
from gmc.store.files import strict_json

stderr = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One line for a person, on stderr."""
    stderr.print(text, markup=False, soft_wrap=True)


def print_json(record: Mapping[str, Any]) -> None:
    """The one JSON object of `--json`, on stdout."""
    sys.stdout.write(strict_json(dict(record)) + "\n")
    sys.stdout.flush()  # a full disk is met here, where it becomes one line


def print_settings(settings: Settings, *, as_json: bool) -> None:
    """The resolved settings of `--dry-run`, on stdout."""
    tree = settings_tree(settings)
    if as_json:
        print_json(tree)
    else:
        typer.echo(tomli_w.dumps(tree), nl=False)
