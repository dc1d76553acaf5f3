"""A run's own files, damaged: every command that reads them says which one, in one line."""

import pytest
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.train

COMMANDS = (["status"], ["train", "--resume"], ["eval", "--limit", "1"], ["rollout", "--follow"])
DAMAGE = {
    "cut": b"[settings\nseed",
    "empty": b"",
    "no table": b"settings = 1\n",
    "not text": b"\xff",
    "deep": b"a = " + b"[" * 9999,
}


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    directory.settings("train").parent.mkdir()
    directory.rollouts.mkdir()
    (directory.rollouts / "b000000-v000000.parquet").touch()
    return directory


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_settings_are_named(run, command, damage):
    run.settings("train").write_bytes(DAMAGE[damage])
    result = CliRunner().invoke(app, [*command, "--run", str(run.path)])
    assert result.exit_code == 1, result.exception
    assert "train.toml: " in result.stderr
    assert len([line for line in result.stderr.splitlines() if not line.endswith("loading torch …")]) == 1


@pytest.mark.parametrize("line", ["seed = '0'", "run_id = 3", "seed = true", "seed = " + "9" * 5000])
def test_a_run_record_of_another_type_is_named(run, line):
    name = line.partition(" ")[0]
    lines = [old for old in (run.path / "run.toml").read_text().splitlines() if not old.startswith(name)]
    (run.path / "run.toml").write_text("\n".join([*lines, line]) + "\n")
    result = CliRunner().invoke(app, ["status", "--run", str(run.path)])
    assert result.exit_code == 1, result.exception
    assert "run.toml: damaged" in result.stderr


def test_a_record_with_entries_of_a_later_version_is_read(run):
    (run.path / "run.toml").write_text((run.path / "run.toml").read_text() + "extra = 1\n")
    result = CliRunner().invoke(app, ["status", "--run", str(run.path)])
    assert result.exit_code == 0, result.stderr
