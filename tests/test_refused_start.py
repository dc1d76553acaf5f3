"""A command that is refused leaves nothing of a run that it started, and everything of one that was there."""

from contextlib import ExitStack

import pytest

from gmc.errors import UsageError
from gmc.generation import filling
from gmc.live.heartbeats import TRAINER, HeartbeatWriter
from gmc.resolving.resolve import resolve_settings
from gmc.store.refused import nothing_left_when_refused
from gmc.store.run_directory import RunDirectory
from gmc.training import run as training

pytestmark = pytest.mark.unit


def start_and_fail(path, *files):
    with nothing_left_when_refused(path), RunDirectory.create(path, model="embedded", seed=0).lock("rule at --delay 1"):
        for name in files:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text("x")
        raise UsageError("no")


def refuse(path, *files):
    """Start a run, write files into it, and be refused."""
    with pytest.raises(UsageError, match=r"^no$"):
        start_and_fail(path, *files)


def held(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*") if entry.is_file())


def test_run_and_folders_are_gone_that_the_command_made(tmp_path):
    refuse(tmp_path / "runs" / "a", "settings/train.toml")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "mine").mkdir()
    refuse(tmp_path / "mine")
    assert [*tmp_path.rglob("*")] == [tmp_path / "mine"]


@pytest.mark.parametrize("file", ["rollouts/b000000-v000000.parquet", "logs/train.log", "notes.txt"])
def test_a_run_with_anything_of_worth_stays(tmp_path, file):
    refuse(tmp_path / "run", file)
    assert held(tmp_path / "run") == sorted(["lock", "run.toml", file])


def test_a_run_that_was_there_before_stays(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    with pytest.raises(UsageError), nothing_left_when_refused(run.path):
        raise UsageError("no")
    assert RunDirectory.open(run.path).run_id == run.run_id


def locked_and_refused(path, locks):
    with nothing_left_when_refused(path):
        locks.enter_context(RunDirectory.create(path, model="embedded", seed=0).lock())
        raise UsageError("no")


def test_a_run_that_another_process_works_on_stays(tmp_path):
    with ExitStack() as locks:
        with pytest.raises(UsageError, match=r"^no$"):
            locked_and_refused(tmp_path / "run", locks)
        assert held(tmp_path / "run") == ["lock", "run.toml"]


@pytest.mark.parametrize("command", ["train", "rollout"])
def test_a_refused_first_command_leaves_nothing(tmp_path, monkeypatch, command):
    path, settings = tmp_path / "runs" / "a", resolve_settings(assignments=["train.updates=1"])

    def refused(run, settings, *rest, **options):
        assert held(path) == ["lock", "run.toml"]
        if command == "train":
            with HeartbeatWriter(run.followers, TRAINER, 1.0).beating():  # as a live run's does
                raise UsageError("no")
        raise UsageError("no")

    monkeypatch.setattr(training, "open_session", refused)
    monkeypatch.setattr(filling, "generate_batches", refused)
    with pytest.raises(UsageError, match=r"^no$"):
        (training.train_run if command == "train" else filling.fill_run)(path, settings)
    assert [*tmp_path.iterdir()] == []
