"""Durable files: the order of flushes and renames, what an error or a crash leaves, and logs."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from recorded_disk import recorded, require_durable_file, require_durable_folder, require_durable_names

from gmc.errors import GmcError
from gmc.store import files, temporary

pytestmark = pytest.mark.unit


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


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_new_folders_are_durable_in_those_that_hold_them(tmp_path, monkeypatch, missing):
    folder = tmp_path.joinpath(*"abc"[:missing])
    with recorded(monkeypatch) as events:
        files.write_text(folder / "a.txt", "text")
    require_durable_names(events, folder / "a.txt", tmp_path)
    with recorded(monkeypatch) as events, files.ready_directory(tmp_path.joinpath(*"xyz"[:missing], "v")) as filled:
        (filled / "content").write_text("x")
    require_durable_names(events, tmp_path.joinpath(*"xyz"[:missing], "v"), tmp_path)


def test_a_folder_is_flushed_with_all_that_is_in_it(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events, files.ready_directory(tmp_path / "v") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "deep.txt").write_text("deep")
        (folder / "content").write_text("x")
    require_durable_folder(events, tmp_path / "v")


def test_a_folder_gets_its_name_before_its_marker(tmp_path, monkeypatch):
    marked: list[bool] = []
    rename = os.replace

    def watched(source: Any, target: Any) -> None:
        if Path(target) == tmp_path / "v":
            marked.append((Path(source) / files.READY).exists())
        rename(source, target)

    monkeypatch.setattr(os, "replace", watched)
    with files.ready_directory(tmp_path / "v") as folder:
        (folder / "content").write_text("x")
    assert marked == [False]
    assert files.is_ready(tmp_path / "v")


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
    with pytest.raises(ZeroDivisionError), files.atomic_path(path) as half:
        raise ZeroDivisionError(half.write_text("half"))
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_while_filling_leaves_the_old_folder_and_no_other(tmp_path):
    path = tmp_path / "v"
    with files.ready_directory(path) as folder:
        (folder / "content").write_text("old")
    with pytest.raises(ZeroDivisionError), files.ready_directory(path) as folder:
        raise ZeroDivisionError((folder / "content").write_text("half"))
    assert (path / "content").read_text() == "old"
    assert files.is_ready(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize("number", files.DISK_FULL)
def test_a_full_disk_is_one_line_that_names_the_file(tmp_path, number):
    with pytest.raises(GmcError, match=r"a.txt: cannot write, the disk is full"), files.atomic_path(tmp_path / "a.txt"):
        raise OSError(number, "full")
    with pytest.raises(ZeroDivisionError), files.atomic_path(tmp_path / "a.txt"):
        raise ZeroDivisionError("not the disk")


def test_a_full_disk_is_known_by_its_cause_or_its_text_alone(tmp_path):
    full = GmcError("inner")
    full.__cause__ = OSError("Io error: No space left on device (os error 28)")
    with pytest.raises(GmcError, match=r"a.txt: cannot write, the disk is full"), files.disk_errors(tmp_path / "a.txt"):
        raise full
    for cause, error in ((None, GmcError("as it is")), (OSError(28, "full"), ValueError("as it is"))):
        error.__cause__ = cause
        with pytest.raises(type(error), match="as it is"), files.disk_errors(tmp_path / "a.txt"):
            raise error


@pytest.mark.parametrize(("hours", "stays"), [(23, True), (25, False)])
def test_what_another_host_left_goes_after_a_day(tmp_path, hours, stays):
    foreign = tmp_path / f"{temporary.TEMPORARY_PREFIX}a-elsewhere-1-00000000"
    foreign.touch()
    os.utime(foreign, (time.time() - hours * 3600,) * 2)
    temporary.remove_leftovers(tmp_path)
    assert foreign.exists() == stays


def test_a_folder_without_its_marker_is_replaced(tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "half").touch()
    with files.ready_directory(tmp_path / "v") as folder:
        (folder / "whole").touch()
    assert {path.name for path in (tmp_path / "v").iterdir()} == {"whole", files.READY}


def test_a_folder_that_vanishes_while_it_is_filled_ends_in_one_line(tmp_path):
    with pytest.raises(GmcError, match="v: cannot write: No such file"), files.ready_directory(tmp_path / "v") as folder:
        (folder.rmdir() or folder / "absent").read_text()


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    mine = temporary.temporary_name(tmp_path / "a")
    mine.touch()
    dead = tmp_path / mine.name.replace(f"-{os.getpid()}-", "-999999999-")
    dead.touch()
    foreign = tmp_path / f"{temporary.TEMPORARY_PREFIX}a-elsewhere-1-00000000"
    foreign.touch()
    old = tmp_path / f"{temporary.TEMPORARY_PREFIX}b-elsewhere-1-00000000"
    old.touch()
    os.utime(old, (0, 0))
    assert sorted(temporary.remove_leftovers(tmp_path)) == sorted([dead, old])
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
