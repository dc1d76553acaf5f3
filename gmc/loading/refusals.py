"""Whatever fails while a stranger's model is loaded, in one line that names the folder, the fact and the cure."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator

import torch

from gmc.errors import DataError, GmcError, UsageError
from gmc.registry import in_one_line

log = logging.getLogger(__name__)

FILES = {
    "model": "config.json and generation_config.json",
    "tokenizer": "tokenizer.json, tokenizer_config.json and config.json",
    "adapter": "adapter_config.json",
}
"""What the settings of each part are read from."""

_PYTHONS_OWN = (TypeError, AttributeError, LookupError, ArithmeticError, AssertionError, RecursionError, NameError)
_PYTHONS_WORDS = re.compile(r"to unpack|literal for|could not convert|argument|object|expected str|not supported|Error\b")
_WRONG_FIELD = re.compile(r"[Ff]ield '(\w+)' expected ")


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
    log.debug("%s: the %s: %s", folder, part, in_one_line(error))
    if isinstance(error, ImportError):
        return UsageError(f"{folder}: the {part} needs what is not here: {cause}; install it, or name another model")
    if os.path.isdir(folder):
        cure = f"restore {FILES[part]} from a copy, or save the {part} again"
        return DataError(f"{folder}: cannot load the {part}: {cause}; {cure}")
    return UsageError(f"model '{folder}': neither a folder here nor a {part} that can be fetched from the hub: {cause}")


def first_line(error: Exception) -> str:
    """What an error says, in one line and without what only Python's own words would say; those are logged for --verbose."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, KeyError):
        return f"an entry {lines[0] if lines else ''} is missing, or is nothing that the library knows"
    if field := _WRONG_FIELD.search(str(error)):
        return f"{field[1]} holds a value of the wrong kind"
    if lines and "validation error" in lines[0].lower():  # of transformers, which says below what is wrong
        return re.sub(r"^\w+Error: ", "", lines[-1])
    if not lines or isinstance(error, _PYTHONS_OWN) or _PYTHONS_WORDS.search(lines[0]):
        return "a value in its files is missing, or of a kind that the library does not expect"
    return lines[0]
