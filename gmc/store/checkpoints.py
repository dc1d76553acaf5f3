"""Checkpoints: the whole training state after an update, complete when READY is there.

checkpoints/u000100/   weights.safetensors, optimizer.safetensors, estimator.safetensors, state.json, then READY

Where ranks hold a part of each parameter (train.sharding = full), the three files are a folder `shared` with one file a rank.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gmc.errors import DataError, GmcError
from gmc.ranks import ALONE, Ranks
from gmc.store.files import (
    checksum,
    finish_directory,
    is_ready,
    read_bytes,
    read_json,
    ready_directory,
    withdraw_directory,
    write_bytes,
    write_text,
)
from gmc.store.formats import read_format, stamp
from gmc.store.records import checked
from gmc.store.run_directory import CHECKPOINT_NAME, checkpoint_name
from gmc.store.temporary import remove_leftovers

STATE_FILE = "state.json"
PARTS = ("weights", "optimizer", "estimator")
SHARED = "shared"


CURE = "restore the folder from a copy, or delete it to resume from the checkpoint before it"


@dataclass(frozen=True)
class _Extra:
    """What must stand beside the tensors; whoever saves may have more. source: the state of the rollouts' source."""

    run_id: str
    source: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _State:
    """What state.json holds beside its format. sha256: of the tensors' files by part, or shared: of those in that folder."""

    update: Annotated[int, Field(ge=0)]
    extra: _Extra
    sha256: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] | None = None
    attachments: dict[str, str] = field(default_factory=dict)


_STATE = TypeAdapter(_State)


@dataclass(frozen=True)
class Checkpoint:
    """State after `update` updates. weights, optimizer, estimator: tensors by name, on the CPU; extra: what JSON holds;
    attachments: other files by name, their contents.

    shared: the folder that holds the tensors instead, when several ranks have written them; None for whole ones.
    """

    update: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    estimator: dict[str, Tensor]
    extra: dict[str, Any]
    path: Path
    attachments: dict[str, bytes] = field(default_factory=dict)
    shared: Path | None = None


def save_checkpoint(
    directory: Path,
    update: int,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    estimator: Mapping[str, Tensor],
    extra: Mapping[str, Any],
    keep: int,
    attachments: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Save the state after `update` updates, atomically and durably, then prune to the newest `keep`; returns the folder.

    extra: strict JSON, such as the run id and the RNG state of a rule; attachments: files by name. Tensors that share storage
    (a tied head) are stored once. An update that has a complete checkpoint already keeps it: its state is determined. Saving
    changes nothing in memory. Raises `GmcError` when the disk is full; the older checkpoints are then untouched.
    """
    path = directory / checkpoint_name(update)
    if not is_ready(path):
        with ready_directory(path) as folder:
            for part, tensors in zip(PARTS, (weights, optimizer, estimator), strict=True):
                _save_tensors(folder / f"{part}.safetensors", tensors)
            for name, contents in attachments.items():
                write_bytes(folder / name, contents)
            attached = {name: hashlib.sha256(contents).hexdigest() for name, contents in attachments.items()}
            digests = {part: checksum(folder / f"{part}.safetensors") for part in PARTS}
            state = {**stamp(), "update": update, "sha256": digests, "attachments": attached, "extra": dict(extra)}
            write_text(folder / STATE_FILE, json.dumps(state, allow_nan=False) + "\n")
    prune_checkpoints(directory, keep)
    return path


def copied_out(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, for saving while the originals change. What shares storage shares its copy."""
    copies: dict[tuple[Any, ...], Tensor] = {}
    return {name: copies.setdefault(_place(each), each.detach().to("cpu", copy=True)) for name, each in tensors.items()}


def load_newest(directory: Path, *, run_id: str | None = None, ranks: Ranks = ALONE) -> Checkpoint | None:
    """The newest complete checkpoint, or None. A folder without READY was cut by a crash and is passed over.

    run_id: when given, `extra["run_id"]` must equal it. Raises `DataError` naming the folder when a complete checkpoint
    cannot be loaded or belongs to another run: going on from an older one is for a person to decide.
    """
    complete = _complete(directory)
    if not complete:
        return None
    checkpoint = load_checkpoint(complete[-1], ranks)
    found = checkpoint.extra.get("run_id")
    if run_id is not None and found != run_id:
        raise DataError(f"{checkpoint.path}: belongs to run {found!r}, not {run_id!r}. Move it away.")
    return checkpoint


def load_checkpoint(path: Path, ranks: Ranks = ALONE) -> Checkpoint:
    """Load one checkpoint folder, as one of `ranks`, all of which load it.

    Raises `DataError` naming it when anything in it is missing, damaged or newer.
    """
    try:
        content = read_json(path / STATE_FILE, CURE)
        read_format(path / STATE_FILE, content)
        state = checked(_STATE, content, path / STATE_FILE, CURE)
        update, extra = state.update, dict(content["extra"])
        if path.name != checkpoint_name(update):
            raise ValueError(f"it holds the state after {update} updates")
        if state.shared is not None:
            named = list(state.shared.items())[ranks.rank :: ranks.count]  # each rank looks at its share
            _require_saved({path / SHARED / name: digest for name, digest in named})
            return Checkpoint(update, {}, {}, {}, extra, path, shared=path / SHARED)
        if lost := [part for part in PARTS if part not in state.sha256]:
            raise DataError(f"{path / STATE_FILE}: damaged (its sha256 names no {lost[0]}); {CURE}")
        _require_saved({path / f"{part}.safetensors": state.sha256[part] for part in PARTS})
        weights, optimizer, estimator = (_load_tensors(path / f"{part}.safetensors") for part in PARTS)
        attachments = {name: _attachment(path / name, sha) for name, sha in state.attachments.items()}
        return Checkpoint(update, weights, optimizer, estimator, extra, path, attachments)
    except GmcError:
        raise
    except (SafetensorError, OSError, KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path}: marked complete but cannot be loaded ({reason}); {CURE}") from error


def finish_shared_checkpoint(
    folder: Path, path: Path, update: int, *, digests: Mapping[str, str], extra: Mapping[str, Any], keep: int
) -> None:
    """Make the checkpoint `path` of a temporary folder whose tensors all ranks have written; then prune to the newest `keep`.

    digests: `checksum` of every file in its `shared`. Errors as for `save_checkpoint`.
    """
    state = {**stamp(), "update": update, "shared": dict(digests), "extra": dict(extra)}
    write_text(folder / STATE_FILE, json.dumps(state, allow_nan=False) + "\n")
    finish_directory(folder, path)
    prune_checkpoints(path.parent, keep)


def _require_saved(digests: Mapping[Path, str]) -> None:
    for file, digest in digests.items():
        if checksum(file) != digest:
            raise ValueError(f"{file.name} is not the file that was saved")


def _attachment(path: Path, checksum: str) -> bytes:
    contents = read_bytes(path)
    if hashlib.sha256(contents).hexdigest() != checksum:
        raise ValueError(f"{path.name} is not the file that was saved")
    return contents


def _complete(directory: Path) -> list[Path]:
    """Complete checkpoint folders, oldest first."""
    return [path for path in _folders(directory) if is_ready(path)]


def has_checkpoint(directory: Path) -> bool:
    """Whether there is a complete checkpoint; not whether it can be loaded."""
    return bool(_complete(directory))


def _folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    matches = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]


def prune_checkpoints(directory: Path, keep: int) -> None:
    """Keep the newest `keep` complete checkpoints; remove the others, folders without READY, and what killed writers left."""
    kept = _complete(directory)[-max(keep, 1) :]
    for path in _folders(directory):
        if path not in kept:
            withdraw_directory(path)
    remove_leftovers(directory)


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        place = _place(tensor)
        if tensor.numel() and place in first:
            aliases[name] = first[place]
            continue
        first[place] = name
        values = tensor.detach().cpu().contiguous()
        shared = values.untyped_storage().nbytes() != values.nbytes
        stored[name] = values.clone() if shared else values
    save_file(stored, path, metadata={"aliases": json.dumps(aliases)})


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are one in memory."""
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def _load_tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        aliases = json.loads((file.metadata() or {}).get("aliases", "{}"))
    tensors.update({name: tensors[target] for name, target in aliases.items()})
    return tensors
