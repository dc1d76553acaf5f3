"""One follower of a fleet that cannot work says why, without Ray."""

import os
from pathlib import Path

import pytest

from gmc.live.fleet_follower import follow_once
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit


def test_a_machine_that_does_not_see_the_run_is_refused(tmp_path: Path) -> None:
    ended = follow_once(tmp_path / "run", [], tmp_path / "run" / "logs" / "fleet-0.log")
    assert ended.code == 2
    assert "not seen on this machine" in ended.said
    assert not (tmp_path / "run").exists()


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0).path
    (run / "logs").write_text("a file where a folder should be")
    ended = follow_once(run, [], run / "logs" / "fleet-0.log")
    assert ended.code == 2
    assert ended.said.startswith(f"{run / 'logs' / 'fleet-0.log'}: ") or "logs" in ended.said
    assert os.linesep not in ended.said
