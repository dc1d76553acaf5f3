"""What `gmc estimators new` and `gmc delays new` write: a package with one plug-in that works as it stands, and its test."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from gmc.cli.output import print_json, write_line
from gmc.errors import UsageError
from gmc.registry import Plugin
from gmc.store.files import write_text

PYPROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "gmc-$name"
version = "0.1.0"
description = "$title for gmc."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["gmc-rl"]

[project.entry-points."$group"]
$name = "$package.$module:$cls"

[tool.hatch.build.targets.wheel]
packages = ["$package"]
""")

README = Template("""\
# gmc-$name

$title for gmc.

    pip install -e .
    pytest
    $commands

The code is in `$package/$module.py`. `gmc.testing.$check` checks it against the contract of `$contract`.
""")


@dataclass(frozen=True)
class Scaffold:
    """One kind of plug-in. kind: the word for it; group: its entry points; installed: what is registered there.

    module: the file in the package that holds the class; source, test: what is written, with $name, $cls and $package; title,
    commands: for the README, with $name; check, contract: who checks it and against what.
    """

    kind: str
    group: str
    installed: Callable[[], Sequence[Plugin[Any]]]
    module: str
    source: Template
    test: Template
    title: Template
    commands: Template
    check: str
    contract: str

    def write(self, name: str, out: Path) -> Path:
        """Write the package `gmc-NAME` under `out` and return its folder.

        Raises `UsageError` for a name that cannot be used, one that is registered already, or a folder that exists.
        """
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
            raise UsageError(f"{name!r} is no {self.kind} name; use lower-case words joined by hyphens, such as my-{self.kind}")
        for plugin in self.installed():
            if plugin.name == name:
                raise UsageError(f"{name!r} is already registered by {plugin.distribution}; choose another name")
        folder = out / f"gmc-{name}"
        if folder.exists():
            raise UsageError(f"{folder} exists already; nothing was written. Choose another name or another --out")
        for path, text in self._files(self._words(name)).items():
            write_text(folder / path, text)
        return folder

    def _words(self, name: str) -> dict[str, str]:
        words = {
            "name": name,
            "package": f"gmc_{name.replace('-', '_')}",
            "cls": "".join(word.capitalize() for word in name.split("-")),
            "group": self.group,
            "module": self.module,
            "check": self.check,
            "contract": self.contract,
        }
        return words | {"title": self.title.substitute(words), "commands": self.commands.substitute(words)}

    def _files(self, words: Mapping[str, str]) -> dict[str, str]:
        package = words["package"]
        return {
            "pyproject.toml": PYPROJECT.substitute(words),
            "README.md": README.substitute(words),
            f"{package}/__init__.py": f'"""{words["title"]} for gmc."""\n',
            f"{package}/{self.module}.py": self.source.substitute(words),
            f"tests/test_{package.removeprefix('gmc_')}.py": self.test.substitute(words),
        }


def report(scaffold: Scaffold, name: str, out: Path, *, json: bool, use: str) -> None:
    """Write a package and tell what to do with it. use: the command that tries it."""
    folder = scaffold.write(name, out)
    if json:
        print_json({"name": name, "folder": str(folder)})
        return
    write_line(f"wrote {folder}")
    write_line(f"install it:  pip install -e {folder}")
    write_line(f"test it:     pip install pytest && python -m pytest {folder}")
    write_line(f"use it:      {use}")
