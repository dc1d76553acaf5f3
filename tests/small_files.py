"""Every key of every small file that gmc reads, dropped, emptied and retyped: what each reader then says."""

import copy
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

from gmc.errors import GmcError

MISSING = object()
VALUES = [MISSING, None, "", "x\n\x1b[2J", [], {}, -1, 1.5, True, 10**30, ["x"], {"x": [1]}]
"""What stands in place of a value."""

PYTHON = re.compile(
    r"__\w+__|NoneType|Traceback|argument must be|object is not|object has no|not subscriptable|positional argument|keyword"
    r" argument|unhashable|indices must be|not supported between|can only concatenate|expected str|literal for int|codec can't"
    r"|<class |\w+Error\b|\w+Exception\b|\bdict\b|\bstr\b|\bint\b|\bbool\b|recursion depth|validation error|out of range"
)
"""Words of Python's own that help nobody who has a file to mend."""
CURE = re.compile(
    r"restore|copy|delete|remove|give|write|start anew|save|publish|another|use |set |add |move|name |leave|install|run |repair"
    r"|resume|is not|check |there (?:is|are) |Found: |did you mean|for example|say |a list of|should|arms are|allowed"
)


def keys(tree: Any, place: tuple[Any, ...] = (), depth: int = 5) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a tree: under each key, and in the first place of each list; the tree itself first."""
    yield place
    if not depth:
        return
    if isinstance(tree, dict):
        for key, value in list(tree.items())[:40]:
            yield from keys(value, (*place, key), depth - 1)
    elif isinstance(tree, list) and tree:
        yield from keys(tree[0], (*place, 0), depth - 1)


def changed(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of the tree with another value at a place, or none."""
    if not place:
        return value
    tree = copy.deepcopy(tree)
    around = tree
    for key in place[:-1]:
        around = around[key]
    if value is not MISSING:
        around[place[-1]] = value
    elif isinstance(around, dict):
        del around[place[-1]]
    else:
        around.pop(place[-1])
    return tree


def load(path: Path) -> Any:
    """A small file as a tree: JSON, the first line of JSONL, or TOML."""
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)


def written(path: Path, tree: Any, original: str) -> str | None:
    """The text of the file with this tree; None where TOML cannot say it."""
    if tree is MISSING:
        return ""
    if path.suffix == ".toml":
        try:
            return tomli_w.dumps(tree)
        except (TypeError, AttributeError, ValueError):
            return None
    text = json.dumps(tree)
    return "\n".join([text, *original.splitlines()[1:], ""]) if path.suffix == ".jsonl" else text


def complaint(error: BaseException, root: Path) -> str:
    """What is wrong with what a reader said; "" for nothing."""
    said = str(error)
    if not isinstance(error, GmcError):
        return f"a traceback: {type(error).__name__}: {said[:300]}"
    if len(said.splitlines()) != 1 or re.search(r"[\x00-\x1f]", said):
        return f"no one line: {said!r}"
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", said.replace(str(root), ""))
    if word := PYTHON.search(bare):
        return f"says {word[0]!r}: {said}"
    if str(root) not in said:
        return f"names no file: {said}"
    if not CURE.search(bare):
        return f"no cure: {said}"
    return ""


def try_all(source: Path, part: str, read: Callable[[Path], object], scratch: Path, *, tries: int = 0) -> Iterator[str]:
    """Every change of one file in a copy of `source`, or `tries` of them; yields what is wrong with each answer."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    shutil.copytree(source, scratch, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, scratch)
    whole = source if source.is_dir() else source.parent
    original_file = next(source.glob(part)) if part else source
    target = scratch / original_file.relative_to(whole)
    original, tree = original_file.read_text("utf-8"), load(original_file)
    cases = [(place, value) for place in keys(tree) for value in VALUES]
    for place, value in cases[:: max(1, len(cases) // tries) if tries else 1]:
        text = written(target, changed(tree, place, value), original)
        if text is None or text == original:
            continue
        target.write_text(text, "utf-8")
        try:
            read(target)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | AssertionError):
                raise
            if wrong := complaint(error, scratch):
                shown = "dropped" if value is MISSING else repr(value)
                yield f"{part}: {'.'.join(map(str, place)) or 'the whole'} = {shown}: {wrong}"
