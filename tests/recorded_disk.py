"""What reaches the disk and when: flushes and renames in order, and what must hold of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gmc.store.files import READY


class Event(NamedTuple):
    """A flush ("sync"; size: of the file then) or the two ends of a rename ("from", then "rename")."""

    kind: str
    path: Path
    size: int = 0


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """Flushes and renames in order."""
    events: list[Event] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(Event("sync", path, 0 if path.is_dir() else os.fstat(descriptor).st_size))
        fsync(descriptor)

    def moved(call: Any) -> Any:
        def move(source: Any, target: Any, **options: Any) -> None:
            events.append(Event("from", Path(source)))
            events.append(Event("rename", Path(target)))
            call(source, target, **options)

        return move

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", moved(replace))
        patch.setattr(os, "rename", moved(rename))
        yield events


def rename_of(events: list[Event], path: Path) -> int:
    """The place of the last rename to `path`."""
    places = [index for index, event in enumerate(events) if event == Event("rename", path)]
    assert places, f"{path.name} was not renamed into place"
    return places[-1]


def require_durable_file(events: list[Event], path: Path) -> int:
    """All of the file was flushed under its temporary name, then renamed, then its folder flushed; the rename's place."""
    place = rename_of(events, path)
    flush = Event("sync", events[place - 1].path, path.stat().st_size)
    assert flush in events[: place - 1], f"{path.name} was renamed before all of it was flushed"
    assert Event("sync", path.parent) in events[place + 1 :], f"the folder of {path.name} was not flushed after the rename"
    return place


def require_durable_folder(events: list[Event], path: Path) -> None:
    """All of the folder was flushed before its rename, its parent after it, and READY was written last."""
    place = rename_of(events, path)
    temporary = events[place - 1].path
    flushed = {event for event in events[:place] if event.kind == "sync"}
    for entry in path.rglob("*"):
        if entry.name != READY:
            flush = Event("sync", temporary / entry.relative_to(path), 0 if entry.is_dir() else entry.stat().st_size)
            assert flush in flushed, f"{entry.name} was not flushed before the folder's rename"
    assert Event("sync", temporary) in flushed
    ready = require_durable_file(events, path / READY)
    assert Event("sync", path.parent) in events[place + 1 : ready], "the parent was not flushed before READY"


def require_durable_names(events: list[Event], path: Path, known: Path) -> None:
    """Every folder between `known`, which was there before, and `path` was flushed after it got the next one's name."""
    for folder in path.parents:
        assert Event("sync", folder) in events, f"{folder} was not flushed, so what was made in it can vanish"
        if folder == known:
            return
    raise AssertionError(f"{path} is not below {known}")
