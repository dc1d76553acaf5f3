"""What a resumed run must know of every batch it launched, kept in one log, so that it opens none of the shards it has used.

launches.jsonl   {"batch": 7, "version": 3, "lengths": [[12, 30], …], "set_aside": [[problem, reward, tokens], …]} a launch

It is a copy of what the shards say. A line that is missing or damaged costs one look into its shard; nothing flushes the log.
"""

import json
from pathlib import Path
from typing import Any

from gmc.store.files import append_jsonl, read_bytes, write_bytes
from gmc.store.shards.reader import Launch
from gmc.store.shards.rollout import SetAside

Launches = dict[tuple[int, int], Launch]


class LaunchLog:
    """The launches of one run, by batch and version."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, batch: int, version: int, launch: Launch) -> None:
        """Append a launch. Of two of one batch and version the later one counts: the shard of the earlier was never written."""
        set_aside = [[group.problem_id, group.reward, group.tokens] for group in launch.set_aside]
        append_jsonl(self._path, {"batch": batch, "version": version, "lengths": launch.lengths_PG, "set_aside": set_aside})

    def read(self) -> Launches:
        """All launches that whole lines tell."""
        return dict(found for line in _lines(self._path) if (found := _launch(line)) is not None)

    def cut(self, frontier: int) -> None:
        """Keep the launches of versions up to `frontier`, those whose shards stay when a run goes back to that update.

        A last line that a crash cut goes too: the next one must not be glued to it.
        """
        lines = _lines(self._path)
        kept = [line for line in lines if (found := _launch(line)) is not None and found[0][1] <= frontier]
        if kept != lines:
            write_bytes(self._path, b"".join(line + b"\n" for line in kept))


def _lines(path: Path) -> list[bytes]:
    """The lines, and what a crash left after the last one."""
    try:
        *lines, end = read_bytes(path).split(b"\n")
    except FileNotFoundError:
        return []
    return [*lines, end] if end else lines


def _launch(line: bytes) -> tuple[tuple[int, int], Launch] | None:
    """Batch, version and launch; None for a line that is damaged."""
    try:
        record: Any = json.loads(line)
        lengths_PG = [[_count(length) for length in group] for group in record["lengths"]]
        set_aside = tuple(SetAside(str(name), float(reward), _count(tokens)) for name, reward, tokens in record["set_aside"])
        return (_count(record["batch"]), _count(record["version"])), Launch(lengths_PG, set_aside)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
