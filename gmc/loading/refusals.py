"""Whatever fails while a stranger's model is loaded, in one line that names the folder, the fact and the cure."""

import contextlib
import os
from collections.abc import Iterator

import torch

from gmc.errors import DataError, GmcError, UsageError


@contextlib.contextmanager
def refusing(folder: str, part: str, trust_remote_code: bool) -> Iterator[None]:
    """Turn any failure within into a `DataError` (a folder) or a `UsageError` (a hub name) about this part of the model.

    A model is a program's worth of files that anyone may have written, so that it can fail in any way; the cause is chained.
    """
    try:
        yield
    except (GmcError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise _refusal(folder, part, error, trust_remote_code) from error


def _refusal(folder: str, part: str, error: Exception, trust_remote_code: bool) -> Exception:
    if not trust_remote_code and "trust_remote_code" in str(error):
        return UsageError(f"{folder}: this {part} brings its own code; read it, then set model.trust_remote_code = true.")
    cause = first_line(error)
    if isinstance(error, ImportError):
        return UsageError(f"{folder}: the {part} needs a package that is not installed: {cause}")
    if os.path.isdir(folder):
        return DataError(f"{folder}: cannot load the {part}: {cause}")
    return UsageError(f"model '{folder}': neither a folder here nor a {part} that can be fetched from the hub: {cause}")


def first_line(error: Exception) -> str:
    """What an error says, in one line; its kind where the words alone would say nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, OSError | ValueError | RuntimeError | ImportError) and not isinstance(error, RecursionError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
