"""What a file system does at the wrong moment, one small case a kind: the store and live mode go on or say it in one line."""

import errno
import logging
import os
import shutil
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from shard_samples import write_sample

from gmc.errors import DataError, GmcError
from gmc.generation.following import PolicyWork
from gmc.live.claims import Claims
from gmc.live.heartbeats import HeartbeatWriter, Watcher, read_heartbeats
from gmc.models import load_model, weights_hash
from gmc.store import files, temporary
from gmc.store.checkpoints import save_checkpoint
from gmc.store.logs import GrowingLog, cut_log, read_used
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import RolloutStore

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


def used_lines(count):
    return "".join(f'{{"update": {n}, "groups": [[{n}, 0]]}}\n' for n in range(count)).encode()


def test_a_follower_of_an_older_run_leaves_nothing_in_the_new_one(run):
    old = Claims(run, "old", Watcher(run.followers, 5.0))
    claim = old.next_free(1)
    assert old.take(claim)
    new = RunDirectory.create(run.path, model="embedded", seed=0, overwrite=True)
    with pytest.raises(GmcError, match=f"holds run {new.run_id} now, this process works for {run.run_id}"):
        old.publish(claim, 0, lambda path: write_sample(path.parent, batch=0, version=0))
    assert not new.rollouts.exists()
    assert list(new.claims.iterdir()) == []
    with pytest.raises(GmcError, match="started anew"):
        old.take(claim)


def test_a_heartbeat_goes_on_when_the_disk_has_room_again(tmp_path, monkeypatch, caplog):
    full, write = [], files.write_bytes
    monkeypatch.setattr(files, "write_bytes", lambda path, content: fail() if full else write(path, content))

    def fail():
        raise GmcError("the disk is full")

    writer = HeartbeatWriter(tmp_path, "me", lease_seconds=0.05)
    with writer.beating():
        full.append(True)
        time.sleep(0.06)
        writer.write("working through it")
        full.clear()
        deadline = time.monotonic() + 20
        while read_heartbeats(tmp_path)["me"].state != "working through it":
            assert time.monotonic() < deadline, "no beat since the disk has room again"
            time.sleep(0.01)
    assert caplog.text.count("no heartbeat: the disk is full") == 1


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\0" * 100 + b"\n" + b"\0" * 50, b"\xff\xfe[[[\n", b'{"update": 7}\n[\n'])
def test_garbage_beyond_the_frontier_is_dropped_and_said(tmp_path, garbage):
    path = tmp_path / "used.jsonl"
    path.write_bytes(used_lines(3) + garbage)
    assert len(read_used(path, 3)) == 3
    cut = cut_log(path, 2)
    assert cut
    assert "beyond the checkpoint" in str(cut)
    assert path.read_bytes() == used_lines(2)
    path.write_bytes(used_lines(2)[:-20] + garbage)
    with pytest.raises(DataError, match=r"used.jsonl, line 2"):
        cut_log(path, 2)


def test_zeros_at_the_end_of_a_log_do_not_stop_its_readers(tmp_path):
    path = tmp_path / "used.jsonl"
    path.write_bytes(used_lines(3) + b"\0" * 512 + b"\n" + b"\0" * 10)
    assert len(read_used(path)) == 3
    assert GrowingLog(path).updates() == 3


def test_a_growing_log_counts_what_is_new_alone(tmp_path, monkeypatch):
    path = tmp_path / "used.jsonl"
    log = GrowingLog(path)
    assert log.updates() == 0
    path.write_bytes(used_lines(1000) + b'{"update": 1000')
    assert log.updates() == 1000
    read: list[int] = []
    added = log._add
    monkeypatch.setattr(log, "_add", lambda content: (read.append(len(content)), added(content)))
    with path.open("ab") as file:
        file.write(b"}\n")
    assert log.updates() == 1001
    assert sum(read) < 100
    cut_log(path, 990)
    assert log.updates() == 990
    path.write_bytes(used_lines(5))  # in place: the same file, shorter
    assert log.updates() == 5
    path.write_bytes(used_lines(4) + b'{"update": 4, "groups": [[9, 9]]}\n{"update": 5}\n')  # and longer, with another past
    assert log.updates() == 6
    path.unlink()
    assert log.updates() == 0


def test_a_leftover_whose_process_number_lives_again_goes(tmp_path):
    """In a container the trainer is process 1 each time: a name tells a process by its start as well."""
    mine = temporary.temporary_name(tmp_path / "a")
    mine.touch()
    birth = mine.name.split("-")[-2]
    before = tmp_path / mine.name.replace(birth, f"{int(birth, 16) ^ 1:08x}")
    before.touch()
    assert temporary.remove_leftovers(tmp_path) == [before]
    assert mine.exists()


def test_leftovers_that_are_links_or_folders_go_and_what_they_point_at_stays(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    directory = tmp_path / "run"
    directory.mkdir()
    dead = temporary.temporary_name(directory / "x").name.replace(f"-{os.getpid()}-", "-999999999-")
    (directory / dead).symlink_to(target)
    (directory / dead.replace("x", "y")).mkdir()
    assert len(temporary.remove_leftovers(directory)) == 2
    assert (target / "kept").exists()
    assert list(directory.iterdir()) == []


def test_a_folder_named_like_those_set_aside_is_left_alone(tmp_path):
    (tmp_path / "aside-old").mkdir()
    (tmp_path / "aside-1").touch()
    write_sample(tmp_path, batch=0, version=3)
    [moved] = RolloutStore(tmp_path, "run-a").set_aside(2)
    assert moved == tmp_path / "aside-2" / "b000000-v000003.parquet"


def test_temporary_heartbeats_of_killed_followers_go(run):
    run.followers.mkdir()
    run.claims.mkdir()
    for folder in (run.followers, run.claims):
        name = temporary.temporary_name(folder / "host-1.json").name.replace(f"-{os.getpid()}-", "-999999999-")
        (folder / name).touch()
    with run.lock():
        assert list(run.followers.iterdir()) + list(run.claims.iterdir()) == []


@pytest.mark.parametrize("umask", [0o022, 0o007, 0o077])
def test_the_umask_decides_who_may_read(tmp_path, umask):
    before = os.umask(umask)
    try:
        run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
        state = {"w": torch.ones(3)}
        save_checkpoint(run.checkpoints, 1, weights=state, optimizer=state, estimator={}, extra={"run_id": "r"}, keep=1)
        publish_policy(load_model("embedded"), run.policies, 1, run.run_id)
        write_sample(run.rollouts)
        HeartbeatWriter(run.followers, "me", 5.0).write("working")
        with run.lock():
            pass
        for path in run.path.rglob("*"):
            allowed = (0o777 if path.is_dir() else 0o666) & ~umask
            if path.name != "lock":
                assert stat.S_IMODE(path.stat().st_mode) == allowed, path
    finally:
        os.umask(before)


def test_who_works_on_a_run_is_told_without_writing(run):
    with run.lock():
        pass
    run.lock_file.chmod(0o444)
    assert run.holder() is None
    run.lock_file.chmod(0o644)
    contents = run.lock_file.read_bytes()
    with run.lock():
        assert f"process {os.getpid()} on" in str(run.holder())
    assert run.holder() is None
    assert run.lock_file.read_bytes() == contents


def test_a_pipe_under_a_file_s_name_is_named_and_not_waited_for(run):
    run.lock_file.unlink(missing_ok=True)
    for path, read in (
        (run.lock_file, run.holder),
        (run.used, lambda: read_used(run.used)),
        (run.metrics, GrowingLog(run.metrics).updates),
    ):
        os.mkfifo(path)
        with pytest.raises(DataError, match=f"{path}: not a plain file; remove it"):
            read()
    with pytest.raises(DataError, match="lock: not a plain file"), run.lock():
        pass


def test_a_folder_that_the_system_does_not_let_go_is_left_for_the_next_clean_up(tmp_path, monkeypatch, caplog):
    """NFS keeps a file `.nfs…` in a folder as long as another machine has it open."""
    path = tmp_path / "v000001"
    with files.ready_directory(path) as folder:
        (folder / "content").touch()
    rmtree = shutil.rmtree

    def kept(doomed, *arguments, **options):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(doomed))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", kept)
        files.withdraw_directory(path)
    assert not path.exists()
    [left] = tmp_path.iterdir()
    assert f"{left}: cannot be removed now (Directory not empty)" in caplog.text
    left.rename(tmp_path / left.name.replace(f"-{os.getpid()}-", "-999999999-"))
    assert rmtree is shutil.rmtree
    assert len(temporary.remove_leftovers(tmp_path)) == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("where", ["fsync", "text"])
def test_every_error_of_the_system_names_the_file_and_what_was_done(tmp_path, monkeypatch, number, where):
    path = tmp_path / "a.json"

    def fail(*_):
        raise OSError(number, os.strerror(number))

    def write():
        if where == "fsync":
            files.write_text(path, "text")
        with files.atomic_path(path):  # as safetensors and tokenizers say it
            raise RuntimeError(f"I/O error: whatever (os error {number})")

    if where == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(GmcError) as caught:
        write()
    assert str(caught.value).startswith(f"{path}: cannot write: {os.strerror(number)}. ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_looked_at_does_not_refuse_its_next_holder(run, caplog):
    caplog.set_level(logging.INFO)
    with run.lock():
        pass
    for _ in range(20):
        assert run.holder() is None
        with run.lock():
            assert run.holder() is not None


def test_a_missing_file_is_still_missing(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        files.read_json(tmp_path / "absent.json")
    with pytest.raises(GmcError, match="cannot read: Is a directory"):
        files.read_json(Path(tmp_path))


def test_a_follower_with_another_tokenizer_starts_no_batch(tmp_path):
    """Token ids are what the trainer learns from, so hashes are compared before a policy is loaded."""
    model = load_model("embedded")
    folder = publish_policy(model, tmp_path, 3, "run")
    maker = SimpleNamespace(
        model=model, metadata=lambda version, published: SimpleNamespace(weights_hash=weights_hash(model.weights()))
    )
    work = PolicyWork(maker, tmp_path)
    work.load_policy(folder)
    info = files.read_json(folder / "gmc.json")
    files.write_json(folder / "gmc.json", {**info, "tokenizer_hash": "0" * 64})
    with pytest.raises(GmcError, match="the trainer's tokenizer has hash 000000000000, that of embedded here"):
        work.load_policy(folder)
