"""What is on the disk when: every writer's order of flushes and renames, recorded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_samples import write_sample
from test_scheduled_source import Maker, make_source

from gmc.delays.base import GroupRef
from gmc.delays.schedule import schedule_of_run, write_schedule
from gmc.errors import GmcError
from gmc.live import exclusive
from gmc.live.heartbeats import HeartbeatWriter
from gmc.models import load_model
from gmc.store import files
from gmc.store.checkpoints import save_checkpoint
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

Event = tuple[str, Path]


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """Flushes ("sync", path) and renames ("rename", target) in order."""
    events: list[Event] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def synced(descriptor: int) -> None:
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def moved(call: Any) -> Any:
        def move(source: Any, target: Any, **options: Any) -> None:
            events.append(("from", Path(source)))
            events.append(("rename", Path(target)))
            call(source, target, **options)

        return move

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", moved(replace))
        patch.setattr(os, "rename", moved(rename))
        yield events


def require_durable_file(events: list[Event], path: Path) -> int:
    """The file was flushed under its temporary name, renamed, and its folder flushed after it; returns the rename's place."""
    place = max(index for index, event in enumerate(events) if event == ("rename", path))
    temporary = events[place - 1][1]
    assert ("sync", temporary) in events[: place - 1], f"{path.name} was renamed before its content was flushed"
    assert ("sync", path.parent) in events[place + 1 :], f"the folder of {path.name} was not flushed after the rename"
    return place


def require_durable_folder(events: list[Event], path: Path) -> None:
    """All of the folder was flushed before its rename, its parent after it, and READY was written last."""
    place = max(index for index, event in enumerate(events) if event == ("rename", path))
    temporary = events[place - 1][1]
    flushed = {one for kind, one in events[:place] if kind == "sync"}
    for entry in path.rglob("*"):
        if entry.name != files.READY:
            assert temporary / entry.relative_to(path) in flushed, f"{entry.name} was not flushed before the folder's rename"
    assert temporary in flushed
    ready = require_durable_file(events, path / files.READY)
    assert ("sync", path.parent) in events[place + 1 : ready], "the parent was not flushed before READY"


def test_a_text_file(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        files.write_text(tmp_path / "folder" / "a.txt", "text")
    require_durable_file(events, tmp_path / "folder" / "a.txt")
    assert (tmp_path / "folder" / "a.txt").read_text() == "text"


def test_a_json_file(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        files.write_json(tmp_path / "a.json", {"a": [1, float("nan")]})
    require_durable_file(events, tmp_path / "a.json")
    assert files.read_json(tmp_path / "a.json") == {"a": [1, None]}


def test_a_shard(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        path = write_sample(tmp_path)
    require_durable_file(events, path)


def test_the_shard_of_a_source(tmp_path, monkeypatch):
    source = make_source(tmp_path, 0, maker=Maker())
    with recorded(monkeypatch) as events:
        source.launch(0)
    require_durable_file(events, tmp_path / "b000000-v000000.parquet")


def test_a_checkpoint(tmp_path, monkeypatch):
    state = {"w": torch.ones(3)}
    with recorded(monkeypatch) as events:
        save_checkpoint(tmp_path, 4, weights=state, optimizer=state, estimator={}, extra={"run_id": "r"}, keep=2)
    require_durable_folder(events, tmp_path / "u000004")


def test_a_policy_and_its_replacement(tmp_path, monkeypatch):
    model = load_model("embedded")
    with recorded(monkeypatch) as events:
        path = publish_policy(model, tmp_path, 3, "run")
    require_durable_folder(events, path)
    with torch.no_grad():
        model.trainable[0].add_(1)
    with recorded(monkeypatch) as events:
        publish_policy(model, tmp_path, 3, "run")
    require_durable_folder(events, path)
    assert files.is_ready(path)


def test_a_run_and_its_settings(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
        run.bind_weights("a" * 64)
    assert [event for event in events if event == ("rename", run.path / "run.toml")] == [("rename", run.path / "run.toml")] * 2
    require_durable_file(events, run.path / "run.toml")


def test_a_schedule(tmp_path, monkeypatch):
    rows = schedule_of_run([[GroupRef(0, 0)]], {0: 0})
    with recorded(monkeypatch) as events:
        write_schedule(tmp_path / "s.parquet", rows)
    require_durable_file(events, tmp_path / "s.parquet")


def test_a_heartbeat(tmp_path, monkeypatch):
    writer = HeartbeatWriter(tmp_path, "me", 60.0)
    with recorded(monkeypatch) as events:
        writer.write("working")
    require_durable_file(events, tmp_path / "me.json")


def test_a_claim(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        assert exclusive.record_once(tmp_path / "b000001.1", {"follower": "me"})
    place = events.index(("rename", tmp_path / "b000001.1"))
    staged = events[place - 1][1]
    assert ("sync", staged / exclusive.RECORD) in events[:place]
    assert ("sync", staged) in events[:place]
    assert ("sync", tmp_path) in events[place + 1 :]


def test_setting_a_folder_aside_takes_the_marker_away_first(tmp_path, monkeypatch):
    path = tmp_path / "v"
    with files.ready_directory(path) as folder:
        (folder / "content").write_text("x")
    unlinked: list[bool] = []
    rename = os.replace

    def watched(source: Any, target: Any) -> None:
        if Path(source) == path:
            unlinked.append(not (path / files.READY).exists())
        rename(source, target)

    monkeypatch.setattr(os, "replace", watched)
    files.withdraw_directory(path)
    assert unlinked == [True]
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(FileNotFoundError), files.atomic_path(path) as temporary:
        (temporary.with_name("folder") / str(temporary.write_text("half"))).read_text()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_while_filling_leaves_the_old_folder_and_no_other(tmp_path):
    path = tmp_path / "v"
    with files.ready_directory(path) as folder:
        (folder / "content").write_text("old")
    with pytest.raises(FileNotFoundError), files.ready_directory(path) as folder:
        (folder / str((folder / "content").write_text("half"))).read_text()
    assert (path / "content").read_text() == "old"
    assert files.is_ready(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize("number", files.DISK_FULL)
def test_a_full_disk_is_one_line_that_names_the_file(tmp_path, number):
    with pytest.raises(GmcError, match=r"a.txt: cannot write, the disk is full"), files.atomic_path(tmp_path / "a.txt"):
        raise OSError(number, "full")
    with pytest.raises(PermissionError), files.atomic_path(tmp_path / "a.txt"):
        raise PermissionError("not the disk")


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    mine = files.temporary_name(tmp_path / "a")
    mine.touch()
    dead = tmp_path / mine.name.replace(f"-{os.getpid()}-", "-999999999-")
    dead.touch()
    foreign = tmp_path / f"{files.TEMPORARY_PREFIX}a-elsewhere-1-00000000"
    foreign.touch()
    old = tmp_path / f"{files.TEMPORARY_PREFIX}b-elsewhere-1-00000000"
    old.touch()
    os.utime(old, (0, 0))
    assert sorted(files.remove_leftovers(tmp_path)) == sorted([dead, old])
    assert mine.exists()
    assert foreign.exists()


def test_a_log_line_cut_by_a_crash_is_left_out_and_damage_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    assert files.read_jsonl(path) == []
    files.append_jsonl(path, {"a": 1})
    files.append_jsonl(path, {"a": float("inf")})
    with path.open("a") as log:
        log.write('{"a": 3')
    assert files.read_jsonl(path) == [{"a": 1}, {"a": None}]
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(GmcError, match="line 2: not valid JSON"):
        files.read_jsonl(path)
    shutil.rmtree(tmp_path)
