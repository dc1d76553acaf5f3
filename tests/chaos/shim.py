"""A patched `os` and `open`: counts the operations on files below one folder, and does one harm at one of them."""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from gmc.store import checkpoints

DIED = 77
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
DEATHS = ("before", "after", "torn")
KINDS = (*ERRORS, *DEATHS)
_NAMED = ("open", "mkdir", "rmdir", "unlink", "chmod", "listdir", "scandir")


class Shim:
    """Watches `root`. point: number of the operation to harm, None for none; kind: one of `KINDS`. mark: a file outside of
    `root` that is made when the harm is done."""

    def __init__(self, root: Path, point: int | None = None, kind: str = "EIO", mark: Path | None = None) -> None:
        self.root = os.path.realpath(root)
        self.point = point
        self.kind = kind
        self._mark = mark
        self.operations: list[tuple[str, str]] = []
        self.seen: Callable[[str, str], None] = lambda operation, path: None
        self._open = io.open

    def install(self) -> None:
        """Patch this process for good: it is a fork that ends soon."""
        for name in _NAMED:
            setattr(os, name, self._on_path(name, getattr(os, name)))
        for name in ("replace", "rename"):
            setattr(os, name, self._on_move(name, getattr(os, name)))
        os.fsync = self._on_descriptor("fsync", os.fsync)
        builtins.open = io.open = self._open_file  # type: ignore[assignment]
        save = safetensors.torch.save_file
        checkpoints.save_file = safetensors.torch.save_file = self._on_save(save)

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

        def patched(content: Any) -> Any:
            def torn() -> None:
                write(content[: len(content) // 2])
                file.flush()

            def whole() -> Any:
                written = write(content)
                file.flush()
                return written

            return self._do("write", where, whole, None, torn)

        return patched

    def _do(self, name: str, where: str, call: Callable[[], Any], named: str | None, torn: Any = None) -> Any:
        if not self._inside(where):
            return call()
        place = len(self.operations)
        self.operations.append((name, where[len(self.root) :]))
        if place == self.point:
            self._harm(call, named, torn)
        result = call()
        self.seen(name, where)
        return result

    def _harm(self, call: Callable[[], Any], named: str | None, torn: Any) -> None:
        if self._mark is not None:
            self._mark.touch()
        if self.kind in ERRORS:
            number = ERRORS[self.kind]
            raise OSError(number, os.strerror(number), *([named] if named else []))
        if self.kind == "after":
            call()
        elif self.kind == "torn" and torn is not None:
            torn()
        os._exit(DIED)

    def _inside(self, where: str) -> bool:
        return where == self.root or where.startswith(f"{self.root}/")

    @staticmethod
    def _full(path: Any, folder: int | None) -> str:
        if isinstance(path, int):
            return os.readlink(f"/proc/self/fd/{path}")
        text = os.fsdecode(path)
        base = os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd()
        return os.path.normpath(os.path.join(base, text))
