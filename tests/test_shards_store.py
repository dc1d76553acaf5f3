"""The folder of shards: names, duplicates, setting aside, leftovers, and bringing in another run's rollouts on purpose."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shard_samples import METADATA, write_sample

from gmc.errors import DataError, UsageError
from gmc.store.files import temporary_name
from gmc.store.run_directory import RunDirectory, rollout_name
from gmc.store.shards.imports import Imports
from gmc.store.shards.reader import read_shard
from gmc.store.shards.store import RolloutStore, StoredShard

WEIGHTS, TOKENIZER = METADATA.weights_hash, METADATA.tokenizer_hash


@pytest.mark.unit
def test_lists_by_batch_and_ignores_everything_else(tmp_path: Path) -> None:
    for name in ("b000010-v000003.parquet", "b000002-v000000.parquet", "b1234567-v000000.parquet"):
        (tmp_path / name).touch()
    for name in (".tmp-b000003-v000000.parquet-x-1-0123abcd", "notes.txt", "b1-v1.parquet", "b000004-v000000.parquet.bak"):
        (tmp_path / name).touch()
    (tmp_path / "aside-1").mkdir()
    (tmp_path / "aside-1" / "b000005-v000000.parquet").touch()
    stored = RolloutStore(tmp_path, "run-a").list()
    assert [(shard.batch, shard.version) for shard in stored] == [(2, 0), (10, 3), (1234567, 0)]
    assert stored[0] == StoredShard(2, 0, tmp_path / "b000002-v000000.parquet")
    assert RolloutStore(tmp_path / "absent", "run-a").list() == []


@pytest.mark.unit
def test_path_for_round_trips(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path, "run-a")
    for batch, version in ((0, 0), (123, 100), (1234567, 7654321)):
        store.path_for(batch, version).touch()
        assert (batch, version) in [(shard.batch, shard.version) for shard in store.list()]
    assert store.path_for(123, 100).name == "b000123-v000100.parquet"


@pytest.mark.unit
def test_two_files_of_one_batch_are_refused_by_name(tmp_path: Path) -> None:
    write_sample(tmp_path, batch=4, version=2)
    write_sample(tmp_path, batch=4, version=3)
    with pytest.raises(DataError, match=r"batch 4 is there twice, b000004-v000002.parquet and b000004-v000003.parquet"):
        RolloutStore(tmp_path, "run-a").list()


@pytest.mark.unit
def test_read_refuses_a_shard_of_another_run(tmp_path: Path) -> None:
    write_sample(tmp_path)
    stored = RolloutStore(tmp_path, "run-a").list()[0]
    assert RolloutStore(tmp_path, "run-a").read(stored).rollouts == read_shard(stored.path, texts=False).rollouts
    with pytest.raises(DataError, match="run id is 'run-a', this run's is 'run-b'"):
        RolloutStore(tmp_path, "run-b").read(stored)


@pytest.mark.unit
def test_read_refuses_a_renamed_shard(tmp_path: Path) -> None:
    write_sample(tmp_path).rename(tmp_path / "b000009-v000002.parquet")
    store = RolloutStore(tmp_path, "run-a")
    with pytest.raises(DataError, match="column batch: 4, and the file's name says 9"):
        store.read(store.list()[0])


@pytest.mark.unit
def test_later_versions_are_set_aside_and_kept(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path, "run-a")
    contents = {}
    for batch in range(5):
        path = write_sample(tmp_path, batch=batch, version=batch)
        contents[path.name] = path.read_bytes()
    moved = store.set_aside(2)
    assert moved == [tmp_path / "aside-1" / rollout_name(batch, batch) for batch in (3, 4)]
    assert [shard.version for shard in store.list()] == [0, 1, 2]
    write_sample(tmp_path, batch=3, version=3)
    assert store.set_aside(2) == [tmp_path / "aside-2" / rollout_name(3, 3)]
    assert store.set_aside(2) == []
    found = {path.name: path.read_bytes() for path in sorted(tmp_path.rglob("*.parquet"))}
    assert found == contents


@pytest.mark.process
def test_clean_removes_what_dead_writers_left(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; import sys; from gmc.store.files import temporary_name; "
        "temporary_name(Path(sys.argv[1])).touch()"
    )
    kept = write_sample(tmp_path)  # first, because a writer removes what dead ones left
    dead_file = tmp_path / "b000001-v000000.parquet"
    subprocess.run([sys.executable, "-c", script, str(dead_file)], check=True)
    dead = [path for path in tmp_path.iterdir() if path != kept]
    assert len(dead) == 1
    living = temporary_name(tmp_path / "b000002-v000000.parquet")
    living.touch()
    foreign, stale = tmp_path / ".tmp-b1-otherhost-1-0123abcd", tmp_path / ".tmp-b2-otherhost-1-0123abcd"
    foreign.touch()
    stale.mkdir()
    (stale / "part").touch()
    os.utime(stale, (time.time() - 2 * 86400,) * 2)
    assert sorted(RolloutStore(tmp_path, "run-a").clean()) == sorted([*dead, stale])
    assert sorted(tmp_path.iterdir()) == sorted([living, foreign, kept])


@pytest.mark.unit
def test_import_takes_the_base_set_under_the_new_run_id(tmp_path: Path) -> None:
    other = RunDirectory.create(tmp_path / "other", model="embedded", seed=0)
    for batch, version in ((0, 0), (1, 0), (2, 1)):
        write_sample(other.rollouts, batch=batch, version=version, run_id=other.run_id)
    store = RolloutStore(tmp_path / "new", "run-new")
    imports = Imports(store, other.path, weights_hash=WEIGHTS, tokenizer_hash=TOKENIZER)
    assert imports.batches == [0, 1]
    assert imports.copy(2) is None
    assert store.list() == []
    imported = [imports.copy(batch) for batch in imports.batches]
    assert [(shard.batch, shard.version) for shard in imported] == [(0, 0), (1, 0)]
    assert imported == store.list()
    for shard in imported:
        new, old = store.read(shard), read_shard(other.rollouts / shard.path.name)
        assert {row.run_id for row in new.rollouts} == {"run-new"} == {new.metadata.run_id}
        assert new.metadata.extra == {"note": "a test", "imported_from_run": other.run_id}
        assert [(r.response_token_ids, r.engine_logprobs, r.reward) for r in new.rollouts] == [
            (r.response_token_ids, r.engine_logprobs, r.reward) for r in old.rollouts
        ]


@pytest.mark.unit
def test_an_import_cut_short_goes_on(tmp_path: Path) -> None:
    for batch in range(3):
        write_sample(tmp_path / "old", batch=batch, version=0)
    store = RolloutStore(tmp_path / "new", "run-new")
    first = Imports(store, tmp_path / "old", weights_hash=WEIGHTS, tokenizer_hash=TOKENIZER)
    first.copy(0)
    there = store.path_for(0, 0).stat()
    again = Imports(store, tmp_path / "old", weights_hash=WEIGHTS, tokenizer_hash=TOKENIZER)
    assert [again.copy(batch) for batch in again.batches] == store.list()
    assert store.path_for(0, 0).stat() == there


@pytest.mark.unit
def test_import_refuses_by_name(tmp_path: Path) -> None:
    write_sample(tmp_path / "old", batch=0, version=0)
    store = RolloutStore(tmp_path / "new", "run-new")
    with pytest.raises(DataError, match=r"b000000-v000000.parquet: generated by weights wwwwwwwwwwww .* starts from other"):
        Imports(store, tmp_path / "old", weights_hash="other", tokenizer_hash=TOKENIZER).copy(0)
    with pytest.raises(DataError, match=r"b000000-v000000.parquet: the file's tokenizer hash"):
        Imports(store, tmp_path / "old", weights_hash=WEIGHTS, tokenizer_hash="other").copy(0)
    with pytest.raises(UsageError, match="no rollouts of policy version 0"):
        Imports(store, tmp_path / "nothing", weights_hash=WEIGHTS, tokenizer_hash=TOKENIZER)
    assert store.list() == []
    write_sample(tmp_path / "new", batch=0, version=0, run_id="run-new")
    with pytest.raises(DataError, match="would mix two rollout sets"):
        Imports(store, tmp_path / "old", weights_hash=WEIGHTS, tokenizer_hash=TOKENIZER)
