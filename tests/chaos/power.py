"""Power loss: after every flush of a run, what the disk is sure to hold is laid out anew, and the run must go on from it.

Two kinds of disk. A `strict` one keeps a file's contents as of its last flush and a folder's names as of the folder's last
flush, and nothing else. An `ordered` one keeps every name at once, but of a file only what was flushed, the rest as zeros, as
journaling file systems do with data that was still to be written.
"""

import os
import stat

from tests.chaos.disks import FILE, FOLDER, State
from tests.chaos.shim import Place, Shim


class Disk:
    """Follows the operations of a shim. states: one of each kind after every flush that changed it."""

    def __init__(self, shim: Shim) -> None:
        self._root = shim.root
        self._held: dict[int, int] = {}
        self._flushed: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._folders: set[int] = set()
        self.states: dict[str, list[State]] = {"strict": [], "ordered": []}
        shim.looks.append(self._look)

    def _look(self, when: str, place: Place, operation: str, path: str) -> None:
        if (when, operation) != ("after", "fsync"):
            return
        path = self._root + path
        number = self._number(path)
        if number in self._folders:
            self._names[number] = {name: self._number(os.path.join(path, name)) for name in os.listdir(path)}
        else:
            self._flushed[number] = self._contents(path)
        for kind, state in (("strict", self._strict()), ("ordered", self._ordered())):
            if not self.states[kind] or self.states[kind][-1] != state:
                self.states[kind].append(state)

    def _number(self, path: str) -> int:
        """The number of a file or folder, held open so that no other gets it after a removal."""
        status = os.stat(path, follow_symlinks=False)
        if status.st_ino not in self._held:
            self._held[status.st_ino] = os.open(path, os.O_RDONLY)
            if stat.S_ISDIR(status.st_mode):
                self._folders.add(status.st_ino)
        return status.st_ino

    def _contents(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def _strict(self) -> State:
        found: State = {}

        def walk(number: int, below: str) -> None:
            for name, child in self._names.get(number, {}).items():
                folder = child in self._folders
                found[f"{below}/{name}"] = (FOLDER, None) if folder else (FILE, self._flushed.get(child, b""))
                if folder:
                    walk(child, f"{below}/{name}")

        walk(self._number(self._root), "")
        return found

    def _ordered(self) -> State:
        found: State = {}
        for parent, folders, names in os.walk(self._root):
            below = parent[len(self._root) :]
            found |= {f"{below}/{name}": (FOLDER, None) for name in folders}
            for name in names:
                path = os.path.join(parent, name)
                flushed, size = self._flushed.get(self._number(path), b""), os.stat(path).st_size
                held = flushed if len(flushed) == size else flushed[:size].ljust(size, b"\0")
                found[f"{below}/{name}"] = (FILE, held)
        return found
