"""A writer killed at any moment, or on a full disk, leaves nothing that a reader would take."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gmc.store.checkpoints import load_newest
from gmc.store.files import TEMPORARY_PREFIX
from gmc.store.shards.reader import read_lengths, read_shard
from gmc.store.shards.store import RolloutStore

pytestmark = pytest.mark.process

HERE = Path(__file__).parent


class CrashServer:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "crash_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self, **request: Any) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    server = CrashServer()
    yield server
    server.close()


def check(kind: str, directory: Path) -> int:
    """Everything that a reader takes is whole; returns how many there are (shards), or the newest number (checkpoints)."""
    if kind == "shard":
        stored = RolloutStore(directory, "run-a").list()
        for shard in stored:
            assert len(read_shard(shard.path, run_id="run-a").rollouts) == 45
            assert len(read_lengths(shard.path)) == 15
        return len(stored)
    checkpoint = load_newest(directory)
    if checkpoint is None:
        return 0
    number = checkpoint.extra["number"]
    assert checkpoint.update == number
    for part in (checkpoint.weights, checkpoint.optimizer):
        assert len(part) == 3
        assert all(torch.equal(tensor, torch.full((300, 100), float(number))) for tensor in part.values())
    return int(number)


def final_names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file() or (path / "READY").exists()} - {
        path.name for path in directory.glob(f"{TEMPORARY_PREFIX}*")
    }


@pytest.mark.parametrize("kind", ["shard", "checkpoint"])
def test_killed_at_random_moments(tmp_path: Path, server: CrashServer, kind: str) -> None:
    rng = random.Random(0)
    directory = tmp_path / "files"
    directory.mkdir()
    reached = 0
    for _ in range(6):
        before = final_names(directory)
        pid = server.start(kind=kind, directory=str(directory), start=reached + 1)
        while not final_names(directory) - before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        assert server.answer() == signal.SIGKILL
        seen = check(kind, directory)
        assert seen > reached
        reached = seen
    RolloutStore(directory, "run-a").clean()
    assert not list(directory.glob(f"{TEMPORARY_PREFIX}*"))


@pytest.mark.parametrize("kind", ["shard", "checkpoint"])
def test_killed_at_every_step(tmp_path: Path, server: CrashServer, kind: str) -> None:
    """Before the last steps nothing is visible; whatever becomes visible is whole; a second try always succeeds."""
    visible = []
    for step in range(200):
        directory = tmp_path / f"step{step}"
        directory.mkdir()
        if kind == "checkpoint":
            server.start(kind=kind, directory=str(tmp_path / "earlier"), die_at=10**6)
            server.answer()
            shutil.copytree(tmp_path / "earlier" / "u001000", directory / "u000999")
            state = directory / "u000999" / "state.json"
            state.write_text(state.read_text().replace("1000", "999"))
        server.start(kind=kind, directory=str(directory), die_at=step)
        status = os.waitstatus_to_exitcode(server.answer())
        files = {path.name for path in directory.iterdir() if not path.name.startswith(TEMPORARY_PREFIX)}
        if kind == "shard":
            visible.append(check(kind, directory))
            assert files == ({"b001000-v000002.parquet"} if visible[-1] else set())
        else:
            newest = load_newest(directory)
            assert newest is not None, "the checkpoint before it must survive"
            visible.append(newest.update == 1000)
        if status == 0:
            break
        if kind == "checkpoint" or not visible[-1]:
            server.start(kind=kind, directory=str(directory), die_at=10**6)
            assert os.waitstatus_to_exitcode(server.answer()) == 0, "a second try must succeed"
        RolloutStore(directory, "run-a").clean()
        assert not list(directory.glob(f"{TEMPORARY_PREFIX}*"))
    else:
        pytest.fail("the writer never finished")
    assert visible == sorted(visible), "once visible, always visible"
    assert not visible[0]
    assert visible[-1]


@pytest.mark.parametrize("kind", ["shard", "checkpoint", "log"])
def test_full_disk(tmp_path: Path, server: CrashServer, kind: str) -> None:
    directory = tmp_path / "files"
    directory.mkdir()
    server.start(kind=kind, directory=str(directory), limit=2000)
    assert os.waitstatus_to_exitcode(server.answer()) == 1, "the writer should report a GmcError"
    names = {"shard": "b001000-v000002.parquet", "checkpoint": "u001000", "log": "metrics.jsonl"}
    message = (tmp_path / "message").read_text()
    assert "the disk is full or a quota is reached" in message
    assert message.startswith(f"{directory / names[kind]}: cannot write")
    assert "\n" not in message
    if kind != "log":
        assert list(directory.iterdir()) == []
        server.start(kind=kind, directory=str(directory), die_at=10**6)
        assert os.waitstatus_to_exitcode(server.answer()) == 0
        assert check(kind, directory) > 0


@pytest.mark.parametrize("kind", ["shard", "checkpoint"])
def test_full_disk_of_a_real_file_system(tmp_path: Path, server: CrashServer, kind: str) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(mount)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a small file system is not permitted: {done.stderr.strip()}")
    try:
        directory = mount / "files"
        directory.mkdir()
        server.start(kind=kind, directory=str(directory), limit=10**9)
        status = server.answer()
        assert list(directory.iterdir()) == []
        assert os.waitstatus_to_exitcode(status) == 1
    finally:
        subprocess.run(["umount", str(mount)], check=True)
