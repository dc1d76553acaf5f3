"""Every illegal row is refused by the writer and, when another tool wrote it, by the reader; the message says where."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_samples import METADATA, changed, floats, make_rollouts

from gmc.errors import DataError, GmcError
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.schema import encode_metadata
from gmc.store.shards.writer import rollout_table, write_shard

pytestmark = pytest.mark.unit

Rows = list[Rollout]


def with_value(column: str, value: float, row: int = 4) -> Callable[[Rows], Rows]:
    def edit(rows: Rows) -> Rows:
        values = list(getattr(rows[row], column))
        values[-1] = value
        return changed(rows, row, **{column: values})

    return edit


def with_values(row: int, **values: object) -> Callable[[Rows], Rows]:
    return lambda rows: changed(rows, row, **values)


def one_short(column: str) -> Callable[[Rows], Rows]:
    return lambda rows: changed(rows, 4, **{column: getattr(rows[4], column)[:-1]})


def too_long(rows: Rows) -> Rows:
    values = floats([-0.5] * 13)
    return changed(
        rows, 4, response_token_ids=[1] * 13, engine_logprobs=values, trainer_logprobs=values, trainer_entropies=[0.5] * 13
    )


def versions(values: list[int]) -> Callable[[Rows], Rows]:
    """Row 4 as a response of three tokens, with these versions."""
    logprobs = {name: [-1.0] * 3 for name in ("engine_logprobs", "trainer_logprobs", "trainer_entropies")}
    return with_values(4, response_token_ids=[1, 2, 3], response_mask=None, token_versions=values, **logprobs)


ILLEGAL: list[tuple[str, Callable[[Rows], Rows], list[str]]] = [
    ("nan engine", with_value("engine_logprobs", float("nan")), ["row 4 (group 1, sample 1)", "engine_logprobs", "nan"]),
    ("nan trainer", with_value("trainer_logprobs", float("nan")), ["row 4", "trainer_logprobs", "nan"]),
    ("positive engine", with_value("engine_logprobs", 0.25), ["row 4", "engine_logprobs", "0.25", "at most 0"]),
    ("positive trainer", with_value("trainer_logprobs", 1e-6), ["row 4", "trainer_logprobs", "at most 0"]),
    ("minus infinity", with_value("engine_logprobs", float("-inf")), ["row 4", "engine_logprobs", "-inf", "finite"]),
    ("beyond float32", with_value("engine_logprobs", -1e300), ["row 4", "engine_logprobs", "-inf", "finite"]),
    ("nan entropy", with_value("trainer_entropies", float("nan")), ["row 4", "trainer_entropies", "nan"]),
    ("short engine", one_short("engine_logprobs"), ["row 4", "engine_logprobs", "values for", "response tokens"]),
    ("short trainer", one_short("trainer_logprobs"), ["row 4", "trainer_logprobs", "response tokens"]),
    ("short entropies", one_short("trainer_entropies"), ["row 4", "trainer_entropies", "response tokens"]),
    ("partly None engine", with_values(2, engine_logprobs=None), ["row 2", "engine_logprobs", "all rows or none"]),
    ("partly None trainer", with_values(2, trainer_logprobs=None), ["row 2", "trainer_logprobs", "all rows or none"]),
    ("partly None entropies", with_values(2, trainer_entropies=None), ["row 2", "trainer_entropies", "all rows or none"]),
    ("partly None clock", with_values(5, ready_at=None), ["row 5", "ready_at", "all rows or none"]),
    ("nan clock", with_values(5, launched_at=float("nan")), ["row 5", "launched_at", "finite"]),
    ("response id too big", with_value("response_token_ids", 50), ["row 4", "response_token_ids", "50", "0 to 49"]),
    ("response id negative", with_value("response_token_ids", -1), ["row 4", "response_token_ids", "-1", "0 to 49"]),
    ("prompt id too big", with_values(0, prompt_token_ids=[1, 2, 3, 4, 99]), ["prompt_token_ids"]),
    ("id None", with_value("response_token_ids", None), ["row 4", "response_token_ids", "null inside the list"]),
    ("log-prob None", with_value("trainer_logprobs", None), ["row 4", "trainer_logprobs", "null inside the list"]),
    ("no ids", with_values(1, response_token_ids=None), ["row 1", "response_token_ids", "null"]),
    ("other prompt", with_values(4, prompt_token_ids=[1, 2, 3, 4, 5]), ["row 4", "prompt_token_ids", "within the group"]),
    ("longer prompt", with_values(4, prompt_token_ids=[1, 2, 3, 4, 5, 6]), ["prompt_token_ids", "within the group"]),
    ("other problem", with_values(5, problem_id="p9"), ["row 5", "problem_id", "'p9'", "one prompt"]),
    ("mixed versions", with_values(5, policy_version=3), ["row 5", "policy_version", "3"]),
    ("two batches", with_values(5, batch=5), ["row 5", "batch", "one launch batch a file"]),
    ("negative version", lambda rows: [replace(row, policy_version=-1) for row in rows], ["row 0", "policy_version", "-1"]),
    ("incomplete group", lambda rows: rows[:-1], ["row 3", "group", "incomplete, 2 of 3"]),
    ("incomplete first group", lambda rows: rows[1:], ["row 0", "group", "incomplete, 2 of 3"]),
    ("missing group", lambda rows: rows[3:], ["row 0", "group 0 is missing"]),
    ("duplicate", with_values(4, sample=0), ["row 4", "sample", "twice"]),
    ("sample beyond", with_values(5, sample=3), ["row 5", "sample", "beyond the group size 3"]),
    ("no status", with_values(1, status=None), ["row 1", "status", "null"]),
    ("short mask", with_values(2, response_mask=[True]), ["row 2", "response_mask", "1 values for"]),
    ("long mask", with_values(2, response_mask=[True] * 13), ["row 2", "response_mask", "13 values for"]),
    ("mask None", with_values(4, response_mask=[True, None]), ["row 4", "response_mask", "null inside the list"]),
    ("versions short", with_values(2, token_versions=[2]), ["row 2", "token_versions", "1 values for"]),
    ("versions fall", versions([2, 3, 2]), ["row 4", "token_versions", "never fall"]),
    ("first version", versions([3, 3, 3]), ["row 4", "token_versions", "begin with policy_version 2"]),
    ("parts of another number", with_values(0, reward_parts=[1.0]), ["row 0", "reward_parts", "names 2 parts"]),
    ("some without parts", with_values(0, reward_parts=None), ["row 0", "reward_parts", "all rows or none"]),
    ("infinite part", with_values(3, reward_parts=[float("inf"), 0.0]), ["row 3", "reward_parts", "infinite"]),
    ("unknown finish", with_values(1, finish_reason="eos"), ["row 1", "finish_reason", "'eos'", "'stop'"]),
    ("nan reward", with_values(1, reward=float("nan")), ["row 1", "reward", "finite"]),
    ("foreign row", with_values(3, run_id="run-b"), ["row 3", "run_id", "'run-b'", "'run-a'"]),
    ("no answer", with_values(3, answer=None), ["row 3", "answer", "null"]),
    ("over max_tokens", too_long, ["row 4", "response_token_ids", "13 tokens", "max_tokens = 12"]),
]
CASES = [pytest.param(edit, words, id=name) for name, edit, words in ILLEGAL]


@pytest.mark.parametrize(("edit", "words"), CASES)
def test_writer_refuses_and_leaves_nothing(tmp_path: Path, edit: Callable[[Rows], Rows], words: list[str]) -> None:
    path = tmp_path / "b000004-v000002.parquet"
    with pytest.raises(DataError) as caught:
        write_shard(path, edit(make_rollouts()), METADATA)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "Nothing was written" in message
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("edit", "words"), CASES)
def test_reader_refuses_the_same(tmp_path: Path, edit: Callable[[Rows], Rows], words: list[str]) -> None:
    path = tmp_path / "other-tool.parquet"
    write_unchecked(path, edit(make_rollouts()), METADATA)
    with pytest.raises(DataError) as caught:
        read_shard(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "Restore the file" in message
    assert all(word in message for word in words), message


def write_unchecked(path: Path, rows: Rows, metadata: ShardMetadata) -> None:
    table = pa.Table.from_batches([rollout_table(rows, str(path))])
    pq.write_table(table.replace_schema_metadata(encode_metadata(metadata)), path)


def test_the_unedited_rows_are_legal(tmp_path: Path) -> None:
    write_shard(tmp_path / "b000004-v000002.parquet", make_rollouts(), METADATA)


def test_writer_refuses_unordered_rows(tmp_path: Path) -> None:
    rows = make_rollouts()
    rows[1], rows[2] = rows[2], rows[1]
    with pytest.raises(DataError, match=r"row 2 \(group 0, sample 1\), column sample: rows must be ordered"):
        write_shard(tmp_path / "a.parquet", rows, METADATA)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"response": 3}, "column response: not storable as string"),
        ({"batch": "4"}, "column batch: not storable as int64"),
        ({"group": 2**40}, "column group: not storable as int32"),
        ({"response_token_ids": [2**40]}, "column response_token_ids: not storable as list"),
        ({"response": "\ud800"}, "column response: not storable as string"),
        ({"reward": "one"}, "column reward: not storable as float"),
    ],
)
def test_writer_names_the_row_of_a_value_of_a_wrong_type(tmp_path: Path, values: dict[str, object], words: str) -> None:
    with pytest.raises(DataError) as caught:
        write_shard(tmp_path / "a.parquet", changed(make_rollouts(), 4, **values), METADATA)
    assert "row 4" in str(caught.value)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kinds", "state"), [(("engine",), "is filled, but not"), (("engine", "trainer"), "is empty, but")])
def test_logprob_kinds_must_agree_with_the_columns(tmp_path: Path, kinds: tuple[str, ...], state: str) -> None:
    rows = make_rollouts()
    if state == "is empty, but":
        rows = [replace(row, trainer_logprobs=None) for row in rows]
    with pytest.raises(DataError, match=f"column trainer_logprobs: {state} among the file's logprob_kinds"):
        write_shard(tmp_path / "a.parquet", rows, replace(METADATA, logprob_kinds=kinds))


def test_rows_must_agree_with_the_file_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column batch: 4, and the file's name says 5"):
        write_shard(tmp_path / "b000005-v000002.parquet", make_rollouts(), METADATA)
    with pytest.raises(DataError, match="column policy_version: 2, and the file's name says 3"):
        write_shard(tmp_path / "b000004-v000003.parquet", make_rollouts(), METADATA)


def test_a_shard_is_never_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "b000004-v000002.parquet"
    write_shard(path, make_rollouts(), METADATA)
    before = path.read_bytes()
    with pytest.raises(GmcError, match="never rewritten"):
        write_shard(path, make_rollouts(seed=1), METADATA)
    assert path.read_bytes() == before


def test_group_size_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="group_size 0"):
        write_shard(tmp_path / "a.parquet", make_rollouts(), replace(METADATA, group_size=0))


def test_max_tokens_must_be_a_number(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sampling.max_tokens 'many' in the shard's metadata is not a number"):
        write_shard(tmp_path / "a.parquet", make_rollouts(), replace(METADATA, sampling={"max_tokens": "many"}))
