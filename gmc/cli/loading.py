"""One line where a command falls silent: the large libraries take seconds to import, and on a busy machine a minute."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from gmc.cli.output import write_line

ANNOUNCED = ("torch", "vllm", "ray")
"""Libraries whose import is said; others come with one of these or take less than a second."""


class _Announcer:
    """Stands first among Python's import finders, finds nothing, and says once what is about to be imported."""

    def __init__(self) -> None:
        self._left = {name for name in ANNOUNCED if name not in sys.modules}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called before any module is imported for the first time."""
        if name in self._left:
            self._left.remove(name)
            if PathFinder.find_spec(name, path) is not None:  # else the import fails at once, and nobody waits
                write_line(f"loading {name} …")
        return None


def announce_imports() -> None:
    """From now on, say in a line on stderr when a large library is about to be imported. Calling again changes nothing."""
    if not any(isinstance(finder, _Announcer) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Announcer())
