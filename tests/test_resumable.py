"""A run whose checkpoints are out of reach is refused before anything in it changes; one killed before its first goes on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gmc.config.settings import RunSettings
from gmc.errors import DataError
from gmc.resolving.resolve import resolve_settings
from gmc.store.files import write_text
from gmc.store.resumable import require_checkpoints
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit


def settings(every: int) -> RunSettings:
    return resolve_settings(flags={}, assignments=[f"train.checkpoint_every={every}"])


def make_run(path: Path, *, updates: int = 0, policies: tuple[int, ...] = (), every: int = 50) -> RunDirectory:
    """A run as far as its logs and markers tell."""
    run = RunDirectory.create(path, model="embedded", seed=0)
    run.save_settings("train", settings(every))
    run.metrics.write_text("".join(json.dumps({"update": n}) + "\n" for n in range(updates)))
    for version in policies:
        write_text(run.policies / f"v{version:06d}" / "READY", "complete\n")
    return run


def dangling(folder: Path) -> None:
    folder.symlink_to("/nowhere/mounted/checkpoints")


def loop(folder: Path) -> None:
    folder.symlink_to(folder)


def file(folder: Path) -> None:
    folder.write_text("no folder\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (dangling, "it points to /nowhere/mounted/checkpoints, which is not there"),
        (loop, "Too many levels of symbolic links"),
        (file, "Not a directory"),
    ],
)
@pytest.mark.parametrize("updates", [0, 4])
def test_checkpoints_out_of_reach_are_refused(tmp_path: Path, spoil: Callable[[Path], None], why: str, updates: int) -> None:
    run = make_run(tmp_path / "run", updates=updates)
    spoil(run.checkpoints)
    with pytest.raises(DataError) as caught:
        require_checkpoints(run)
    line = str(caught.value)
    assert line.startswith(f"{run.checkpoints}: cannot be read ({why})")
    assert "mount the disk" in line
    assert "\n" not in line


@pytest.mark.parametrize("empty", [False, True])
def test_a_published_policy_proves_that_there_was_a_checkpoint(tmp_path: Path, empty: bool) -> None:
    run = make_run(tmp_path / "run", updates=4, policies=(0, 4))
    if empty:
        (run.checkpoints / "u000004").mkdir(parents=True)  # without its marker
    with pytest.raises(DataError, match=r"though policy v000004 is published; restore .* from a copy, or start anew"):
        require_checkpoints(run)
    write_text(run.checkpoints / "u000004" / "READY", "complete\n")
    require_checkpoints(run)


def test_a_trained_run_without_its_folder_has_lost_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=4, policies=(0,))
    with pytest.raises(
        DataError, match=r"no such folder, though 4 updates are in metrics\.jsonl.*mkdir .*checkpoints\) to begin"
    ):
        require_checkpoints(run)
    run.checkpoints.mkdir()
    require_checkpoints(run)  # as a run killed before its first checkpoint


@pytest.mark.parametrize(("updates", "proves"), [(4, False), (5, True)])
def test_more_updates_than_two_checkpoints_apart_prove_one(tmp_path: Path, updates: int, proves: bool) -> None:
    run = make_run(tmp_path / "run", updates=updates, every=2)
    run.checkpoints.mkdir()
    if proves:
        with pytest.raises(DataError, match=r"no complete checkpoint in it, though 5 updates are in metrics\.jsonl"):
            require_checkpoints(run)
    else:
        require_checkpoints(run)


def test_a_run_that_has_not_trained_needs_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    require_checkpoints(run)
    run.checkpoints.mkdir()
    run.settings("train").unlink()  # killed before they were saved
    require_checkpoints(run)
