"""Paths that other programs read otherwise: such as addresses of a store, bytes that are no text, and what is no plain file."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_samples import METADATA, make_rollouts
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.delays.schedule import ScheduleRow, read_schedule, write_schedule
from gmc.errors import DataError, GmcError, UsageError
from gmc.evaluation.samples import SCHEMA, join_parts, read_samples, write_part
from gmc.problems.readers import read_parquet
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import count_groups, read_lengths, read_metadata, read_shard
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.unit

FOLDERS = ("s3:x", "file:y", "hdfs:z", os.fsdecode(b"runs\xff"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_parquet_file_is_written_and_read_by_its_path_alone(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    path = Path(folder, "0.parquet")
    path.parent.mkdir()
    rows = make_rollouts()
    write_shard(path, rows, METADATA)
    assert read_shard(path).rollouts == rows
    assert read_metadata(path).run_id == METADATA.run_id
    assert (count_groups(path), len(read_lengths(path))) == (2, 2)

    schedule = [ScheduleRow(update, 0, update, 0, 0, None, None) for update in range(3)]
    write_schedule(path.with_name("s.parquet"), schedule)
    assert read_schedule(path.with_name("s.parquet")) == (schedule, 1)

    write_part(path.with_name("part"), [])
    join_parts([path.with_name("part")], path.with_name("samples.parquet"), {})
    assert read_samples(path.with_name("samples.parquet")) == []
    assert pq.read_schema(pa.BufferReader(path.with_name("samples.parquet").read_bytes())).names == SCHEMA.names

    pq.write_table(pa.table({"question": ["1+1"]}), problems := pa.BufferOutputStream())
    path.with_name("p.parquet").write_bytes(problems.getvalue())
    assert [row.values for row in read_parquet(path.with_name("p.parquet"))] == [{"question": "1+1"}]


READERS: Sequence[Callable[[Path], Any]] = (read_shard, read_lengths, read_metadata, count_groups, read_samples, read_parquet)


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_plain_file_is_called_so(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="pipe: not a plain file"):
        read(tmp_path / "pipe")
    with pytest.raises(GmcError, match="folder: cannot read: Is a directory"):
        read(tmp_path / "folder")
    with pytest.raises(GmcError, match="loop: cannot read: Too many levels of symbolic links"):
        read(tmp_path / "loop")


def test_a_run_s_path_that_is_no_text_is_refused_before_anything_is_made(tmp_path):
    path = tmp_path / os.fsdecode(b"run\xff")
    with pytest.raises(UsageError, match=r"run\\xff': the run's path is not UTF-8 text; choose another --run"):
        RunDirectory.create(path, model="embedded", seed=0)
    for command in (["train"], ["rollout"], ["eval"], ["status"], ["samples"]):
        result = CliRunner().invoke(app, [*command, "--run", str(path)])
        assert result.exit_code == 2
        [line] = result.stderr.splitlines()
        assert r"run\xff' is not UTF-8 text" in line
    assert not any(tmp_path.iterdir())
