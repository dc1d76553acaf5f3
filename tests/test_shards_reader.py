"""The reader: what it accepts from other tools, what it refuses by name, and that nothing changes on the way."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from shard_samples import METADATA, VOCABULARY, floats, make_rollouts, write_sample

from gmc.errors import DataError
from gmc.store.shards.reader import read_lengths, read_metadata, read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.schema import SCHEMA
from gmc.store.shards.writer import write_shard

FROZEN = Path(__file__).parent / "data" / "frozen" / "shard-version-1.parquet"
"""Written by gmc 0.1: one group of `make_rollouts`."""
OPTIONAL = {
    *("engine_logprobs", "trainer_logprobs", "trainer_entropies", "launched_at", "ready_at"),
    *("response_mask", "token_versions", "reward_parts", "note", "turns"),
}
pytestmark = pytest.mark.unit

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
log_probability = st.floats(-(2.0**99), 0, width=32)


@st.composite
def shards(draw: st.DrawFn) -> tuple[list[Rollout], ShardMetadata]:
    groups, size = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    engine, trainer, clock = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    rows = []
    for group in range(groups):
        prompt = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4))
        version, problem = draw(st.integers(0, 2**40)), draw(text)
        for sample in range(size):
            ids = draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=12))
            values = st.lists(log_probability, min_size=len(ids), max_size=len(ids))
            rows.append(
                Rollout(
                    run_id="run-a",
                    problem_id=problem,
                    batch=7,
                    group=group,
                    sample=sample,
                    policy_version=version,
                    prompt_token_ids=prompt,
                    response_token_ids=ids,
                    finish_reason=draw(st.sampled_from(["stop", "length"])),
                    reward=draw(st.floats(-2, 2, width=32)),
                    status=draw(st.sampled_from(["correct", "incorrect", "unparseable", "timeout", "crash"])),
                    answer=draw(text),
                    prediction=draw(st.none() | text),
                    prompt=draw(text),
                    response=draw(text),
                    engine_logprobs=draw(values) if engine else None,
                    trainer_logprobs=draw(values) if trainer else None,
                    trainer_entropies=draw(values) if trainer else None,
                    launched_at=draw(st.floats(0, 1e9)) if clock else None,
                    ready_at=draw(st.floats(0, 1e9)) if clock else None,
                )
            )
    kinds = tuple(kind for kind, there in (("engine", engine), ("trainer", trainer)) if there)
    return rows, replace(METADATA, group_size=size, logprob_kinds=kinds)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shards())
def test_round_trip(tmp_path: Path, sample: tuple[list[Rollout], ShardMetadata]) -> None:
    rows, metadata = sample
    path = tmp_path / "shard.parquet"
    path.unlink(missing_ok=True)
    write_shard(path, rows, metadata)
    shard = read_shard(path, run_id="run-a", tokenizer_hash=metadata.tokenizer_hash)
    assert shard.rollouts == rows
    assert shard.metadata == metadata == read_metadata(path)
    size = metadata.group_size
    lengths = [len(row.response_token_ids) for row in rows]
    assert read_lengths(path) == [lengths[start : start + size] for start in range(0, len(lengths), size)]


def test_values_are_plain_python(tmp_path: Path) -> None:
    row = read_shard(write_sample(tmp_path)).rollouts[1]
    assert row.answer == "047"
    for value, kind in (
        (row.batch, int),
        (row.group, int),
        (row.reward, float),
        (row.launched_at, float),
        (row.response_token_ids, list),
        (row.response_token_ids[0], int),
        (row.engine_logprobs, list),
        (row.engine_logprobs[0] if row.engine_logprobs else None, float),
    ):
        assert type(value) is kind


def test_columns_in_any_order_extra_columns_and_shuffled_rows(tmp_path: Path) -> None:
    expected = read_shard(write_sample(tmp_path)).rollouts
    table = pq.read_table(tmp_path / "b000004-v000002.parquet")
    order = [3, 0, 5, 1, 4, 2]
    table = table.take(order).select(SCHEMA.names[::-1]).append_column("mine", pa.array([{"a": 1}] * 6))
    pq.write_table(table, tmp_path / "shuffled.parquet")
    assert read_shard(tmp_path / "shuffled.parquet").rollouts == expected
    assert read_lengths(tmp_path / "shuffled.parquet") == read_lengths(tmp_path / "b000004-v000002.parquet")


def test_an_error_names_the_row_of_the_file_not_of_the_sorted_rows(tmp_path: Path) -> None:
    table = pq.read_table(write_sample(tmp_path)).take([3, 0, 5, 1, 4, 2])
    reasons = table.column("finish_reason").to_pylist()
    reasons[2] = "eos"
    place = table.schema.get_field_index("finish_reason")
    pq.write_table(table.set_column(place, "finish_reason", pa.array(reasons)), tmp_path / "shuffled.parquet")
    with pytest.raises(DataError, match=r"row 2 \(group 1, sample 2\), column finish_reason: 'eos'"):
        read_shard(tmp_path / "shuffled.parquet")


def test_wider_types_are_read_and_other_kinds_refused(tmp_path: Path) -> None:
    source = pq.read_table(write_sample(tmp_path))
    wide = source
    for name, kind in {
        "answer": pa.large_string(),
        "status": pa.dictionary(pa.int32(), pa.string()),
        "batch": pa.int32(),
        "response_token_ids": pa.large_list(pa.int64()),
        "trainer_logprobs": pa.list_(pa.float64()),
        "reward": pa.float64(),
    }.items():
        wide = wide.set_column(wide.schema.get_field_index(name), name, wide.column(name).cast(kind))
    pq.write_table(wide, tmp_path / "wide.parquet")
    assert read_shard(tmp_path / "wide.parquet").rollouts == read_shard(tmp_path / "b000004-v000002.parquet").rollouts

    for name, values in {
        "answer": pa.array([47] * 6),
        "response_token_ids": pa.array(["1 2 3"] * 6),
        "batch": pa.array([4.0] * 6),
        "reward": pa.array(["1"] * 6),
        "trainer_logprobs": pa.array([[1]] * 6),
    }.items():
        other = source.set_column(source.schema.get_field_index(name), name, values)
        pq.write_table(other, tmp_path / "other.parquet")
        with pytest.raises(DataError, match=f"column {name} has type .*, the contract says"):
            read_shard(tmp_path / "other.parquet")


def test_wider_values_that_do_not_fit_are_named(tmp_path: Path) -> None:
    source = pq.read_table(write_sample(tmp_path))
    for name, values in {"response_token_ids": pa.array([[2**40]] * 6), "group": pa.array([2**40] * 6)}.items():
        other = source.set_column(source.schema.get_field_index(name), name, values)
        pq.write_table(other, tmp_path / "other.parquet")
        with pytest.raises(DataError, match=f"column {name} has values that .* cannot hold"):
            read_shard(tmp_path / "other.parquet")


@pytest.mark.parametrize("name", ["engine_logprobs", "trainer_logprobs", "trainer_entropies", "launched_at", "ready_at"])
def test_a_whole_column_may_be_left_out(tmp_path: Path, name: str) -> None:
    kinds = tuple(kind for kind in ("engine", "trainer") if f"{kind}_logprobs" != name)
    rows = [replace(row, **{name: None}) for row in make_rollouts()]
    write_shard(tmp_path / "null.parquet", rows, replace(METADATA, logprob_kinds=kinds))
    table = pq.read_table(tmp_path / "null.parquet")
    pq.write_table(table.drop_columns([name]), tmp_path / "absent.parquet")
    pq.write_table(
        table.set_column(table.schema.get_field_index(name), name, pa.nulls(len(rows))), tmp_path / "untyped.parquet"
    )
    for file in ("null", "absent", "untyped"):
        assert read_shard(tmp_path / f"{file}.parquet").rollouts == rows


@pytest.mark.parametrize(
    "name",
    [name for name in SCHEMA.names if name not in OPTIONAL],
)
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    table = pq.read_table(write_sample(tmp_path))
    pq.write_table(table.drop_columns([name]), tmp_path / "less.parquet")
    with pytest.raises(DataError, match=f"less.parquet: column {name} is missing \\(found: "):
        read_shard(tmp_path / "less.parquet")


@pytest.mark.parametrize("name", ["response_mask", "token_versions", "note", "turns"])
def test_what_version_1_does_not_have_may_be_left_out(tmp_path: Path, name: str) -> None:
    table = pq.read_table(write_sample(tmp_path))
    pq.write_table(table.drop_columns([name]), tmp_path / "less.parquet")
    assert {getattr(row, name) for row in read_shard(tmp_path / "less.parquet").rollouts} == {None}


def test_a_shard_of_version_1_is_read_as_before() -> None:
    shard = read_shard(FROZEN)
    assert (shard.metadata.schema_version, shard.metadata.rewards, shard.metadata.reward_parts) == (1, (), ())
    assert [row.status for row in shard.rollouts] == ["unparseable", "correct", "unparseable"]
    assert [row.reward for row in shard.rollouts] == [0.0, 1.0, 0.0]
    assert [row.response_token_ids for row in shard.rollouts] == pq.read_table(FROZEN)["response_token_ids"].to_pylist()
    for name in ("response_mask", "token_versions", "reward_parts", "note", "turns"):
        assert {getattr(row, name) for row in shard.rollouts} == {None}


def test_a_shard_of_version_1_without_its_grade_is_refused(tmp_path: Path) -> None:
    pq.write_table(pq.read_table(FROZEN).drop_columns(["grade"]), tmp_path / "less.parquet")
    with pytest.raises(DataError, match="column grade is missing"):
        read_shard(tmp_path / "less.parquet")


def test_a_part_that_does_not_apply_is_nan(tmp_path: Path) -> None:
    rows = [replace(row, reward_parts=[row.reward, float("nan")]) for row in make_rollouts()]
    write_shard(tmp_path / "nan.parquet", rows, METADATA)
    assert all(math.isnan(row.reward_parts[1]) for row in read_shard(tmp_path / "nan.parquet").rollouts)


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    table = pq.read_table(write_sample(tmp_path))
    pq.write_table(table.append_column("answer", table.column("answer")), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="column answer occurs twice"):
        read_shard(tmp_path / "twice.parquet")


def test_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    path = write_sample(tmp_path)
    with pytest.raises(
        DataError, match=r"b000004-v000002.parquet: the file's run id is 'run-a', this run's is 'run-b'.*--rollouts"
    ):
        read_shard(path, run_id="run-b")
    with pytest.raises(DataError, match="tokenizer hash"):
        read_shard(path, tokenizer_hash="other")


def test_missing_file(tmp_path: Path) -> None:
    for read in (read_shard, read_lengths, read_metadata):
        with pytest.raises(DataError, match=r"nothing.parquet: no such file"):
            read(tmp_path / "nothing.parquet")


@pytest.mark.parametrize("kept", [0, 1, 4, 100, 0.5, 0.9, -1])
def test_truncated_file(tmp_path: Path, kept: float) -> None:
    path = write_sample(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    for read in (read_shard, read_lengths, read_metadata):
        with pytest.raises(DataError, match=r"b000004-v000002.parquet: truncated or damaged Parquet file .* Restore the file"):
            read(path)


def test_a_flipped_byte_in_any_column_is_noticed(tmp_path: Path) -> None:
    path = write_sample(tmp_path)
    content = path.read_bytes()
    file = pq.ParquetFile(path)
    group = file.metadata.row_group(0)
    for index in range(group.num_columns):
        column = group.column(index)
        damaged = bytearray(content)
        damaged[column.data_page_offset + column.total_compressed_size - 1] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="truncated or damaged Parquet file"):
            read_shard(path)


def test_any_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """The footer has no checksum, so a flip there may rename something; what is trained on never changes."""
    path = write_sample(tmp_path)
    content, expected = path.read_bytes(), read_shard(path).rollouts
    refused = 0
    for seed in range(300):
        rng = random.Random(seed)
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read_shard(path).rollouts
        except DataError:
            refused += 1
            continue
        for name in ("group", "policy_version", "response_token_ids", "reward", "engine_logprobs", "trainer_logprobs"):
            assert [getattr(row, name) for row in found] == [getattr(row, name) for row in expected]
    assert refused > 150


def test_a_file_that_is_no_shard(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet: not a gmc shard"):
        read_shard(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b'{"schema_version": 3, "anything": 1}', "schema version 3, this gmc reads versions 1 and 2"),
        (b"{}", "schema version None"),
        (b"[1]", "not a JSON object"),
        (b"\xff", "not a JSON object"),
        (b'{"schema_version": 1, "run_id": "r"}', "metadata entry 'model_id' is bad"),
    ],
)
def test_a_bad_record_is_refused(tmp_path: Path, record: bytes, words: str) -> None:
    table = pq.read_table(write_sample(tmp_path))
    pq.write_table(table.replace_schema_metadata({b"gmc": record}), tmp_path / "bad.parquet")
    for read in (read_shard, read_lengths, read_metadata):
        with pytest.raises(DataError) as caught:
            read(tmp_path / "bad.parquet")
        assert words in str(caught.value)
        assert "bad.parquet" in str(caught.value)


def test_lengths_refuse_a_group_that_is_not_whole(tmp_path: Path) -> None:
    table = pq.read_table(write_sample(tmp_path))
    pq.write_table(table.slice(0, 5), tmp_path / "short.parquet")
    with pytest.raises(DataError, match="whole groups of 3 samples"):
        read_lengths(tmp_path / "short.parquet")


def test_zero_rows_and_zero_length_responses(tmp_path: Path) -> None:
    write_shard(tmp_path / "none.parquet", [], METADATA)
    assert read_shard(tmp_path / "none.parquet").rollouts == []
    assert read_lengths(tmp_path / "none.parquet") == []
    empty = {"response_token_ids": [], "engine_logprobs": [], "trainer_logprobs": [], "trainer_entropies": [], "response": ""}
    empty |= {"response_mask": [], "token_versions": [], "turns": None}
    rows = [replace(row, **empty) for row in make_rollouts()]
    write_shard(tmp_path / "empty.parquet", rows, METADATA)
    assert read_shard(tmp_path / "empty.parquet").rollouts == rows
    assert read_lengths(tmp_path / "empty.parquet") == [[0, 0, 0], [0, 0, 0]]


def test_long_rows_lie_in_several_small_row_groups(tmp_path: Path) -> None:
    count = 500_000
    values = floats([-0.5] * count)
    ids = [7] * count
    long = {"response_token_ids": ids, "engine_logprobs": values, "trainer_logprobs": values, "trainer_entropies": None}
    long |= {"response_mask": None, "token_versions": None, "turns": None}
    rows = [replace(row, **long) for row in make_rollouts()]
    path = tmp_path / "long.parquet"
    write_shard(path, rows, replace(METADATA, sampling={"temperature": "1.0"}))
    file = pq.ParquetFile(path)
    sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups)]
    assert len(sizes) > 1
    assert max(sizes) <= 64 * 2**20
    assert read_lengths(path) == [[count] * 3] * 2
    assert read_shard(path).rollouts[5].response_token_ids == ids


@pytest.mark.parametrize("column", ["group", "sample", "response_token_ids"])
@pytest.mark.parametrize("rows", ["one", "all"])
def test_lengths_of_a_column_with_nulls_are_refused(tmp_path: Path, column: str, rows: str) -> None:
    path = write_sample(tmp_path)
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    changed = [None] * len(values) if rows == "all" else [None, *values[1:]]
    place = table.schema.get_field_index(column)
    pq.write_table(
        table.set_column(place, table.schema.field(column), pa.array(changed, table.schema.field(column).type)), path
    )
    with pytest.raises(DataError, match=rf"{path.name}: column {column} has nulls"):
        read_lengths(path)
