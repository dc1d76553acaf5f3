"""The results of a sweep in one JSONL file: a header, then a line a run. Every report can be rebuilt from it alone.

A header holds the study and the settings that its first run had; a run's line holds only the settings that differ from the
header above it. When the study changes, a new header is appended, and the lines before it keep theirs.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gmc.config.layers import CHOSEN as DECIDED
from gmc.config.layers import DEFAULT, flatten
from gmc.config.settings import RunSettings
from gmc.errors import DataError, UsageError, no_file
from gmc.lab.sweep_file import Curve, Sweep, parse_sweep
from gmc.store.files import disk_errors, fsync_directory, make_directory, read_jsonl, strict_json, write_text
from gmc.store.formats import read_format, stamp
from gmc.store.records import checked
from gmc.store.run_directory import library_versions

FINISHED, FAILED = "finished", "failed"
PLACE = ("model.device",)
"""Settings that say where a run was made, and not what it was."""
CURE = "restore the file from a copy, or remove the line and run the sweep again"


@dataclass(frozen=True)
class RunRecord:
    """One run as recorded. settings: by dotted key, complete; values, chosen: of the axes, see `Cell`; status: finished or
    failed, then with the one-line error.

    scores: by benchmark and name, value with interval over problems, whether it is a share of right answers, and the sum of
    every problem's samples (avg@n and greedy; a digit each where they are whole and below ten); curve: one
    {version, benchmark, scores} an evaluated policy, oldest first; training: summary over all updates; windows: means over
    twenty stretches of the run; seconds: by phase.
    """

    run: str
    arm: str
    stage: str
    seed: int
    settings: Mapping[str, Any]
    status: str
    values: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    settings_hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    curve: Sequence[Mapping[str, Any]] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    windows: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the run made all its updates and was evaluated."""
        return self.status == FINISHED


@dataclass(frozen=True)
class _Header:
    """What the line of a study holds. settings: that its first run had, by dotted key."""

    sweep: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    tuned_on: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Line:
    """What the line of a run holds in place of its settings: those that differ from the header's, and those it has not."""

    differs: dict[str, Any]
    without: list[str]


_HEADER, _LINE, _RECORD = TypeAdapter(_Header), TypeAdapter(_Line), TypeAdapter(RunRecord)


@dataclass(frozen=True)
class Results:
    """What a file holds. sweep: the study as its newest header says it; tuned_on: seeds that another sweep used to choose
    settings that these runs take; records: the newest line of each run."""

    path: Path
    sweep: Sweep
    tuned_on: Sequence[int]
    records: Sequence[RunRecord]

    @property
    def tuning_seeds(self) -> frozenset[int]:
        """Every seed that chose something: no verdict may use it."""
        own = self.sweep.select.seeds if self.sweep.select else []
        return frozenset({*own, *self.tuned_on})


def flat_settings(settings: RunSettings, curve: Curve | None) -> dict[str, Any]:
    """Every setting by dotted key, where a run was made left out, and how it was evaluated along the way."""
    flat = {key: value for key, value in flatten(settings.model_dump(mode="json")) if key not in PLACE}
    return flat | ({} if curve is None else {f"curve.{key}": value for key, value in curve.model_dump().items()})


def is_same_run(flat: Mapping[str, Any], origins: Mapping[str, str], record: RunRecord) -> bool:
    """Whether a recorded run had these settings (as of `flat_settings`, with the origin of each).

    A setting that the version which recorded it did not have yet may be missing there, as long as it stands at its default.
    """
    for key, value in flat.items():
        if key in record.settings:
            if record.settings[key] != value:
                return False
        elif key.startswith("curve.") or not _is_default(origins.get(key, DEFAULT)):
            return False
    return "curve.every" in flat or "curve.every" not in record.settings


def _is_default(origin: str) -> bool:
    return origin in (DEFAULT, "rule") or origin in DECIDED


class ResultsFile:
    """Appends to a results file; a line is durable when `append` returns. Only one process writes."""

    def __init__(self, path: Path, sweep: Sweep, base: RunSettings, tuned_on: Sequence[int] = ()) -> None:
        self.path = path
        self._base, self._versions = flat_settings(base, sweep.curve), library_versions()
        header = {
            "kind": "sweep",
            **stamp(),
            "sweep": sweep.model_dump(mode="json", exclude_defaults=True),
            "tuned_on": sorted(tuned_on),
            "settings": self._base,
            "versions": self._versions,
        }
        make_directory(path.parent)
        _cut_torn_line(path)
        if strict_json(header) != _last_header(path):
            self._write(header)

    def append(self, record: RunRecord) -> None:
        """Add one run."""
        content = {name: value for name, value in vars(record).items() if name != "settings"}
        missing = object()
        differs = {key: value for key, value in record.settings.items() if self._base.get(key, missing) != value}
        without = sorted(key for key in self._base if key not in record.settings)
        if record.versions == self._versions:
            del content["versions"]
        self._write({"kind": "run", **content, "differs": differs, "without": without})

    def _write(self, content: Mapping[str, Any]) -> None:
        fresh = not self.path.exists()
        with disk_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(strict_json(dict(content)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if fresh:
            fsync_directory(self.path.parent)


def read_results(path: Path) -> Results:
    """Read a results file. A last line cut by a crash is left out. Raises `DataError` naming file and line for damage."""
    if not path.is_file():
        raise UsageError(f"{path}: {no_file(path)}")
    sweep, header = None, {}
    records: dict[str, RunRecord] = {}
    for number, line in enumerate(read_jsonl(path), start=1):
        where = f"{path}, line {number}"
        kind = line.get("kind") if isinstance(line, dict) else None
        if kind == "sweep":
            read_format(path, line)
            checked(_HEADER, line, where, CURE)
            sweep, header = parse_sweep(line["sweep"], where), line
        elif kind == "run" and sweep is not None:
            record = _record(line, header, where)
            records[record.run] = record
        else:
            raise DataError(f"{where}: neither the header of a sweep nor a run below one; {CURE}")
    if sweep is None:
        raise DataError(f"{path}: holds no sweep; give the results file of gmc lab sweep")
    return Results(path, sweep, header.get("tuned_on", []), list(records.values()))


def _record(line: Mapping[str, Any], header: Mapping[str, Any], where: str) -> RunRecord:
    own = checked(_LINE, line, where, CURE)
    settings = {key: value for key, value in header["settings"].items() if key not in own.without} | own.differs
    content = {each.name: line[each.name] for each in fields(RunRecord) if each.name in line}
    content = {"versions": header.get("versions", {}), **content, "settings": settings}
    checked(_RECORD, content, where, CURE)
    return RunRecord(**content)


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        whole, newline, _ = raw.rpartition(b"\n")
        write_text(path, (whole + newline).decode("utf-8"))


def _last_header(path: Path) -> str | None:
    if not path.exists():
        return None
    headers = [line for line in read_jsonl(path) if isinstance(line, dict) and line.get("kind") == "sweep"]
    return strict_json(headers[-1]) if headers else None
