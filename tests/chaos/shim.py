"""A patched `os` and `open`: counts the operations on files below one folder, and does one harm at one of them."""

import builtins
import errno
import io
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DIED = 77
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
DEATHS = ("before", "after", "torn")
KINDS = (*ERRORS, *DEATHS)
_NAMED = ("open", "mkdir", "rmdir", "unlink", "chmod", "listdir", "scandir")


class Place(NamedTuple):
    """An operation by who does it and its number among those of that thread: what threads do at once has no other order."""

    thread: str
    number: int


class Shim:
    """Watches `root`. place: the operation to harm, None for none; kind: one of `KINDS`. mark: a file outside of `root` that is
    made when the harm is done.

    operations: place, name and path of each so far. One is done at a time, and what it calls itself is part of it. looks:
    called "before", "torn" (half-way through a write) and "after" each; the disk then stands still.
    """

    def __init__(self, root: Path, place: Place | None = None, kind: str = "EIO", mark: Path | None = None) -> None:
        self.root = os.path.realpath(root)
        self.operations: list[tuple[Place, str, str]] = []
        self.looks: list[Callable[[str, Place, str, str], None]] = []
        self._place = place
        self._kind = kind
        self._mark = mark
        self._open = io.open
        self._turn = threading.RLock()
        self._busy = self._over = False
        self._counts: Counter[str] = Counter()

    def install(self) -> None:
        """Patch this process for good: it is a fork that ends soon."""
        for name in _NAMED:
            setattr(os, name, self._on_path(name, getattr(os, name)))
        for name in ("replace", "rename"):
            setattr(os, name, self._on_move(name, getattr(os, name)))
        os.fsync = self._on_descriptor("fsync", os.fsync)
        builtins.open = io.open = self._open_file  # type: ignore[assignment]
        for module in ("safetensors.torch", "gmc.store.checkpoints"):
            if loaded := sys.modules.get(module):
                loaded.save_file = self._on_save(loaded.save_file)  # type: ignore[attr-defined]

    def release(self) -> None:
        """Watch nothing any more."""
        self._over = True

    def _on_path(self, name: str, call: Any) -> Any:
        def patched(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            where = self._full(path, options.get("dir_fd"))
            return self._do(name, where, lambda: call(path, *arguments, **options), where)

        return patched

    def _on_move(self, name: str, call: Any) -> Any:
        def patched(source: Any, target: Any, **options: Any) -> Any:
            where = self._full(target, None)
            return self._do(name, where, lambda: call(source, target, **options), where)

        return patched

    def _on_descriptor(self, name: str, call: Any) -> Any:
        def patched(descriptor: int) -> Any:
            return self._do(name, self._full(descriptor, None), lambda: call(descriptor), None)

        return patched

    def _on_save(self, save: Any) -> Any:
        """The writer of tensors is not Python: it says the system's error in words of its own."""
        from safetensors import SafetensorError

        def patched(tensors: Any, path: Any, **options: Any) -> Any:
            try:
                return self._do("save tensors", self._full(path, None), lambda: save(tensors, path, **options), None)
            except OSError as error:
                raise SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from None

        return patched

    def _open_file(self, path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        where = self._full(path, None)
        file = self._do("open", where, lambda: self._open(path, mode, *arguments, **options), where)
        if set(mode) & set("wax+") and self._inside(where):
            file.write = self._on_write(file, where)
        return file

    def _on_write(self, file: Any, where: str) -> Any:
        write = file.write

        def part(content: Any) -> Any:
            written = write(content)
            file.flush()
            return written

        def patched(content: Any) -> Any:
            half = len(content) // 2

            def whole() -> Any:
                if not self.looks:
                    return part(content)
                first = part(content[:half])
                self._look("torn", self.operations[-1])
                return first + part(content[half:])

            return self._do("write", where, whole, None, torn=lambda: part(content[:half]))

        return patched

    def _do(self, name: str, where: str, call: Callable[[], Any], named: str | None, torn: Any = None) -> Any:
        if not self._inside(where):
            return call()
        with self._turn:
            if self._busy:
                return call()
            self._busy = True
            try:
                return self._next(name, where, call, named, torn)
            finally:
                self._busy = False

    def _next(self, name: str, where: str, call: Callable[[], Any], named: str | None, torn: Any) -> Any:
        thread = threading.current_thread().name.removesuffix("Thread").split("_")[0].lower()
        place = Place(thread, self._counts[thread])
        self._counts[thread] += 1
        self.operations.append((place, name, where[len(self.root) :]))
        self._look("before", self.operations[-1])
        if place == self._place:
            self._harm(call, named, torn)
        result = call()
        self._look("after", self.operations[-1])
        return result

    def _look(self, when: str, operation: tuple[Place, str, str]) -> None:
        for look in self.looks:
            look(when, *operation)

    def _harm(self, call: Callable[[], Any], named: str | None, torn: Any) -> None:
        if self._mark is not None:
            self._mark.touch()
        if self._kind in ERRORS:
            number = ERRORS[self._kind]
            raise OSError(number, os.strerror(number), *([named] if named else []))
        if self._kind == "after":
            call()
        elif self._kind == "torn" and torn is not None:
            torn()
        os._exit(DIED)

    def _inside(self, where: str) -> bool:
        return not self._over and (where == self.root or where.startswith(f"{self.root}/"))

    @staticmethod
    def _full(path: Any, folder: int | None) -> str:
        if isinstance(path, int):
            return os.readlink(f"/proc/self/fd/{path}")
        text = os.fsdecode(path)
        base = os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd()
        return os.path.normpath(os.path.join(base, text))
