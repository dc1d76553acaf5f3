"""Sending a library's own output to a file: what it prints, what it logs and what its subprocesses print."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Meanwhile standard output and error go to the end of `path`; children started now keep writing there.

    File descriptors are moved as well as Python's streams, because subprocesses and compiled code know only those.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as log:
        _flush()
        saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        try:
            for descriptor in saved:
                os.dup2(log.fileno(), descriptor)
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                yield
        finally:
            for descriptor, original in saved.items():
                os.dup2(original, descriptor)
                os.close(original)


def log_to(logger_name: str, path: Path) -> None:
    """Give a library's logger one file as its only destination."""
    logger = logging.getLogger(logger_name)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for old in logger.handlers:
        old.close()
    logger.handlers = [handler]
    logger.propagate = False


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
