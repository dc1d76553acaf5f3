"""What a folder holds at a moment: read, laid out again, and told apart."""

import hashlib
import os
import re
import stat
from pathlib import Path

from tests.chaos.shim import Place, Shim

FILE, FOLDER = 0o644, 0o755

State = dict[str, tuple[int, bytes | None]]
"""By path below the folder: permissions, and the contents of a file, None for a folder."""

_WRITER = re.compile(r"-\d+-[0-9a-f]{8}-[0-9a-f]{8}")
_TIMES = re.compile(rb'"(time/\w+|\w*seconds\w*|created\w*|\w+_at)": [^,}]+')


def read_state(root: str) -> State:
    """All of a folder."""
    found: State = {}
    for parent, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            found[path[len(root) :]] = (stat.S_IMODE(mode), None if stat.S_ISDIR(mode) else Path(path).read_bytes())
    return found


def lay_out(state: State, path: Path) -> None:
    """Make the folder that a state describes."""
    path.mkdir(parents=True)
    for name, (mode, content) in sorted(state.items()):
        place = path / name.lstrip("/")
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)
        place.chmod(mode)


def fingerprint(state: State) -> str:
    """Equal for folders from which a command goes on alike: equal but for the numbers of dead processes and for timings, which
    no command reads."""
    entries = sorted((_WRITER.sub("", name), mode, _lasting(name, content)) for name, (mode, content) in state.items())
    return hashlib.sha256(repr(entries).encode()).hexdigest()


def _lasting(name: str, content: bytes | None) -> str:
    if content is None:
        return "folder"
    if name == "/lock":  # who held it last, for people
        return "lock"
    return hashlib.sha256(_TIMES.sub(b"", content) if name.endswith((".json", ".jsonl")) else content).hexdigest()


class Deaths:
    """Follows a shim and keeps what each death would leave. states: the different ones, None where there is no folder yet; of:
    the number of its state by kind of death and place."""

    def __init__(self, shim: Shim) -> None:
        self._root = shim.root
        self._numbers: dict[str, int] = {}
        self.states: list[State | None] = []
        self.of: dict[tuple[str, Place], int] = {}
        shim.looks.append(self._look)

    def _look(self, when: str, place: Place, operation: str, path: str) -> None:
        state = read_state(self._root) if os.path.isdir(self._root) else None
        key = fingerprint(state) if state is not None else ""
        if key not in self._numbers:
            self._numbers[key] = len(self.states)
            self.states.append(state)
        self.of[when, place] = self._numbers[key]
        self.of.setdefault(("after", place), self._numbers[key])  # what fails by itself has no other
