"""A command as somebody without rights of its own gives it, also where the tests run as root."""

import contextlib
import ctypes
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gmc.cli.app import app

_VERSION_3 = 0x20080522


def command(*arguments: object) -> tuple[int, str, str]:
    """Exit code, output and messages of a command of gmc in a child that has put down every capability (Linux): modes of files
    then hold it as they hold anyone. An exception that is not a line shows in the messages."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            header = struct.pack("Ii", _VERSION_3, 0)
            assert ctypes.CDLL(None).capset(header, struct.pack("6I", *[0] * 6)) == 0
            done: Any = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "500"})
            unexpected = "" if isinstance(done.exception, SystemExit | None) else repr(done.exception)
            os.write(writer, json.dumps([done.exit_code, done.stdout[:9000], done.stderr[:9000] + unexpected]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    code, output, messages = json.loads(said)
    return code, output, messages


@contextmanager
def modes(change: dict[Path, int]) -> Iterator[None]:
    """Within it these files and folders have these modes."""
    before = {path: path.stat().st_mode for path in change}
    try:
        for path, mode in change.items():
            path.chmod(mode)
        yield
    finally:
        for path, mode in reversed(before.items()):
            path.chmod(mode)


def read_only(folder: Path) -> dict[Path, int]:
    """The modes of a folder that is there to be read: everything in it without the right to write."""
    return {path: path.stat().st_mode & 0o555 for path in (*folder.rglob("*"), folder)}
