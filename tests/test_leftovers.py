"""What a killed writer leaves is gone when the next one writes there, wherever that is; other names are left alone."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gmc.store import temporary
from gmc.store.files import new_directory, write_text
from gmc.store.policies import publish_policy, read_policy_info
from gmc.store.temporary import temporary_name

KILLED = "import os, signal, sys; from pathlib import Path; from gmc.store.temporary import temporary_name as name\n"
KILLED += "name(Path(sys.argv[1])).write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"


def leave(path):
    """Let a process die while it writes `path`."""
    died = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = path.parent.glob(".tmp-*")
    return left


@pytest.mark.process
@pytest.mark.parametrize("write", [lambda path: write_text(path, "whole"), lambda path: fill(path)], ids=["file", "folder"])
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path, write):
    left = leave(tmp_path / "page.html")
    write(tmp_path / "other")
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def fill(path):
    with new_directory(path) as folder:
        (folder / "file").write_text("whole")


@pytest.mark.unit
def test_names_of_others_and_of_the_living_stay(tmp_path):
    ours = temporary_name(tmp_path / "page.html")
    foreign = tmp_path / f".tmp-page.html-other_host-12-{'0' * 8}-{'1' * 8}"
    for path in (ours, foreign, tmp_path / ".tmp-notes", tmp_path / ".tmp-a-b-c"):
        path.write_text("kept")
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    temporary._sweep.cache_clear()
    write_text(tmp_path / "next", "whole")
    assert len([*tmp_path.glob(".tmp-*")]) == 4
    os.utime(foreign, (0, 0))  # days old: whoever wrote it is gone
    os.utime(tmp_path / ".tmp-notes", (0, 0))  # days old as well, and nobody knows whose
    temporary._sweep.cache_clear()
    write_text(tmp_path / "next", "whole")
    assert not foreign.exists()
    assert (tmp_path / ".tmp-notes").exists()


@pytest.mark.unit
def test_a_policy_whose_record_is_damaged_is_published_again(tmp_path):
    from gmc.models import load_model

    model = load_model("embedded")
    path = publish_policy(model, tmp_path, 3, "run")
    (path / "gmc.json").write_text("{")
    assert publish_policy(model, tmp_path, 3, "run") == path
    assert read_policy_info(path).version == 3
