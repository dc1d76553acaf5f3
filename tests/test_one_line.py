"""No message takes a second line or steers the terminal because of what a stranger's file holds."""

import logging

import pyarrow.parquet as pq
import pytest
from shard_samples import METADATA, changed, make_rollouts, write_sample

from gmc.cli.logs import ConsoleHandler
from gmc.cli.output import print_error, write_line
from gmc.errors import DataError, GmcError, UsageError, one_line
from gmc.store.shards.reader import read_shard
from gmc.store.shards.schema import METADATA_KEY
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.unit

STEERING = [*map(chr, range(32)), "\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066"]


@pytest.mark.parametrize("character", STEERING, ids=ascii)
def test_whatever_is_said_is_one_line(capsys, character):
    text = f"run 'x{character}y'"
    for error in (GmcError(text), DataError(text), UsageError(text)):
        assert character not in str(error)
        assert str(error) == one_line(text)
    print_error(text)
    write_line(text)
    ConsoleHandler().emit(logging.LogRecord("gmc", logging.WARNING, "", 0, "%s", (text,), None))
    said = capsys.readouterr().err
    assert len(said.splitlines()) == said.count("\n") == 3
    assert character == "\n" or character not in said


def test_a_run_id_with_a_line_end_stays_in_its_line(tmp_path):
    path = write_sample(tmp_path)
    table = pq.read_table(path)
    record = table.schema.metadata[METADATA_KEY].replace(METADATA.run_id.encode(), rb"x\n")
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: record}), path)
    with pytest.raises(DataError) as caught:
        read_shard(path, run_id="mine")
    assert len(str(caught.value).splitlines()) == 1


def test_an_empty_prompt_is_refused_with_its_row(tmp_path):
    rows = make_rollouts()
    for row in range(METADATA.group_size):
        rows = changed(rows, row, prompt_token_ids=[])
    with pytest.raises(DataError, match=r"b000004-v.*row 0 \(group 0, sample 0\), column prompt_token_ids: \[\] is empty"):
        write_shard(tmp_path / "b000004-v000002.parquet", rows, METADATA)
