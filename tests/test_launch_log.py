"""Resuming opens no shard whose launch the log tells, and the log is never believed where the shards may say otherwise."""

from pathlib import Path
from typing import Any

import pytest
from shard_samples import METADATA
from test_scheduled_source import PROMPTS, Maker

from gmc.delays.base import GroupRef
from gmc.delays.length import LengthDelay
from gmc.errors import DataError
from gmc.rollouts import scheduled
from gmc.rollouts.resampling import SetAsideAccount
from gmc.rollouts.scheduled import ScheduledSource
from gmc.store.shards.launches import LaunchLog
from gmc.store.shards.reader import Launch, count_groups, read_launch, read_lengths
from gmc.store.shards.rollout import SetAside
from gmc.store.shards.store import RolloutStore

pytestmark = pytest.mark.unit

UPDATES = 12
ASIDE = (SetAside("a problem", 1.0, 31), SetAside("schwierig", 0.0, 7))


def source_of(folder: Path, log: LaunchLog | None) -> ScheduledSource:
    """Under a clock that response lengths drive, so that a wrong length gives another order."""
    store = RolloutStore(folder / "rollouts", METADATA.run_id)
    delays = LengthDelay(40.0, prompts=PROMPTS, updates=UPDATES)
    return ScheduledSource(store, delays, Maker(), spec="length:40", planned_updates=UPDATES, launches=log)


def trained(folder: Path, updates: int) -> tuple[list[list[GroupRef]], dict[str, Any], dict[str, float]]:
    """What a source does for the first updates: groups used, its state and metrics."""
    folder.mkdir(exist_ok=True)
    source = source_of(folder, LaunchLog(folder / "launches.jsonl"))
    used = []
    for update in range(updates):
        assert source.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in source.take(update)])
    return used, source.state_dict(), source.metrics()


@pytest.fixture
def opened(monkeypatch):
    """The shards that are opened for their lengths."""
    found: list[str] = []
    monkeypatch.setattr(scheduled, "read_launch", lambda path: (found.append(path.name), read_launch(path))[1])
    return found


@pytest.mark.parametrize("logged", [True, False])
def test_a_resumed_source_stands_where_it_stood_and_opens_no_shard_that_the_log_tells(tmp_path, opened, logged):
    used, state, metrics = trained(tmp_path, 8)
    resumed = source_of(tmp_path, LaunchLog(tmp_path / "launches.jsonl") if logged else None)
    resumed.load_state_dict(state, used)
    assert resumed.metrics() == metrics
    assert len(opened) == (0 if logged else len(LaunchLog(tmp_path / "launches.jsonl").read()))
    assert resumed.launch(8)
    going_on = [(group[0].batch, group[0].group) for group in resumed.take(8)]
    assert going_on == [tuple(ref) for ref in trained(tmp_path / "whole", 9)[0][8]]


DAMAGES = (
    b"\0" * 50,
    b"{",
    b"[]",
    b'{"batch": 2, "version": 0}',
    b'{"batch": 2, "version": 0, "lengths": [["x"]], "set_aside": []}',
    b'{"batch": -2, "version": 0, "lengths": [[3]], "set_aside": []}',
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_line_does_not_tell_its_shard_does(tmp_path, opened, damage):
    used, state, metrics = trained(tmp_path, 8)
    path = tmp_path / "launches.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], damage, *lines[3:]]) + b"\n")
    resumed = source_of(tmp_path, LaunchLog(path))
    resumed.load_state_dict(state, used)
    assert resumed.metrics() == metrics
    assert [name[:7] for name in opened] == ["b000002"]


def test_a_log_cut_at_the_frontier_forgets_later_versions_and_what_a_crash_left(tmp_path):
    log = LaunchLog(tmp_path / "launches.jsonl")
    for batch, version in ((0, 0), (1, 0), (2, 1), (3, 2)):
        log.add(batch, version, Launch([[batch, 5]], ASIDE))
    with (tmp_path / "launches.jsonl").open("ab") as file:
        file.write(b'{"batch": 4, "ver')
    log.cut(1)
    log.add(3, 2, Launch([[8, 8]]))
    log.add(3, 2, Launch([[9, 9]]))
    assert log.read() == {
        (0, 0): Launch([[0, 5]], ASIDE),
        (1, 0): Launch([[1, 5]], ASIDE),
        (2, 1): Launch([[2, 5]], ASIDE),
        (3, 2): Launch([[9, 9]]),
    }
    before = (tmp_path / "launches.jsonl").stat().st_ino
    log.cut(2)
    assert (tmp_path / "launches.jsonl").stat().st_ino == before


def test_a_line_of_another_version_is_not_the_shard_s(tmp_path, opened):
    used, state, metrics = trained(tmp_path, 8)
    log = LaunchLog(tmp_path / "launches.jsonl")
    told = log.read()
    (tmp_path / "launches.jsonl").unlink()
    for (batch, version), launch in told.items():
        log.add(batch, version + (batch == 3), launch)
    resumed = source_of(tmp_path, log)
    resumed.load_state_dict(state, used)
    assert (resumed.metrics(), len(opened)) == (metrics, 1)
    assert set(log.read()) > set(told), "what was looked up is known from now on"


def test_groups_are_counted_from_the_footer(tmp_path):
    trained(tmp_path, 1)
    (stored, *_) = RolloutStore(tmp_path / "rollouts", METADATA.run_id).list()
    assert count_groups(stored.path) == len(read_lengths(stored.path)) == PROMPTS


def test_an_account_goes_through_a_checkpoint(tmp_path):
    account = SetAsideAccount()
    account.add(ASIDE)
    assert SetAsideAccount.parse({"groups": 2, "reward": 1.0, "tokens": 38}) == account
    with pytest.raises(DataError, match="restore the folder from a copy"):
        SetAsideAccount.parse("damaged")
