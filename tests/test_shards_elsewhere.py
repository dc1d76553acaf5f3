"""Shards open in other tools without help, with the documented types."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from shard_samples import METADATA, make_rollouts, write_sample

from gmc.store.shards.schema import SCHEMA
from gmc.store.shards.writer import write_shard

TYPES = {
    "run_id": "string",
    "problem_id": "string",
    "batch": "int64",
    "group": "int32",
    "sample": "int32",
    "policy_version": "int64",
    "prompt_token_ids": "list<element: int32>",
    "response_token_ids": "list<element: int32>",
    "finish_reason": "string",
    "reward": "float",
    "status": "string",
    "answer": "string",
    "prediction": "string",
    "prompt": "string",
    "response": "string",
    "engine_logprobs": "list<element: float>",
    "trainer_logprobs": "list<element: float>",
    "trainer_entropies": "list<element: float>",
    "launched_at": "double",
    "ready_at": "double",
    "response_mask": "list<element: bool>",
    "token_versions": "list<element: int64>",
    "turns": "list<element: string>",
    "reward_parts": "list<element: float>",
    "note": "string",
}


@pytest.mark.unit
def test_types_in_the_file(tmp_path: Path) -> None:
    for path in (write_sample(tmp_path), _without_optional_columns(tmp_path)):
        file = pq.ParquetFile(path)
        assert {field.name: str(field.type) for field in file.schema_arrow} == TYPES
        assert {file.metadata.row_group(0).column(index).compression for index in range(len(TYPES))} == {"ZSTD"}
        record = json.loads(file.schema_arrow.metadata[b"gmc"])
        assert (record["schema_version"], record["run_id"], record["group_size"]) == (2, "run-a", 3)


def _without_optional_columns(directory: Path) -> Path:
    path = directory / "plain.parquet"
    none = dict.fromkeys(("engine_logprobs", "trainer_logprobs", "trainer_entropies", "launched_at", "ready_at"))
    write_shard(path, [replace(row, **none) for row in make_rollouts()], replace(METADATA, logprob_kinds=()))
    return path


@pytest.mark.unit
def test_pandas(tmp_path: Path) -> None:
    frame = pd.read_parquet(write_sample(tmp_path))
    rows = make_rollouts(seed=4)
    assert list(frame.columns) == SCHEMA.names
    assert {name: str(frame[name].dtype) for name in ("batch", "group", "policy_version", "reward", "ready_at")} == {
        "batch": "int64",
        "group": "int32",
        "policy_version": "int64",
        "reward": "float32",
        "ready_at": "float64",
    }
    assert frame["answer"].tolist() == [row.answer for row in rows]
    assert [ids.tolist() for ids in frame["response_token_ids"]] == [row.response_token_ids for row in rows]
    assert frame["prediction"].isna().tolist() == [row.prediction is None for row in rows]
    plain = pd.read_parquet(_without_optional_columns(tmp_path))
    assert str(plain["policy_version"].dtype) == "int64"
    assert plain["trainer_logprobs"].isna().all()


@pytest.mark.train
def test_datasets(tmp_path: Path) -> None:
    from datasets import List, Value, load_dataset

    first, second = write_sample(tmp_path, batch=0), write_sample(tmp_path, batch=1)
    files = [str(first), str(second), str(_without_optional_columns(tmp_path))]
    data = load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    expected = {}
    for name, kind in TYPES.items():
        value = kind.removeprefix("list<element: ").removesuffix(">")
        feature = Value({"float": "float32", "double": "float64"}.get(value, value))
        expected[name] = List(feature) if kind.startswith("list") else feature
    assert data.features == expected
    assert data[1]["response_token_ids"] == make_rollouts(batch=0)[1].response_token_ids
    assert data["answer"][0] == "047"
    assert data[12]["engine_logprobs"] is None


@pytest.mark.unit
def test_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(write_sample(tmp_path))
    assert frame.schema["policy_version"] == polars.Int64
    assert frame.schema["response_token_ids"] == polars.List(polars.Int32)
    assert frame.schema["trainer_logprobs"] == polars.List(polars.Float32)
    assert frame["response_token_ids"].to_list() == [row.response_token_ids for row in make_rollouts(seed=4)]
    assert polars.read_parquet(_without_optional_columns(tmp_path))["ready_at"].null_count() == 6


@pytest.mark.unit
def test_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = write_sample(tmp_path)
    rows = duckdb.sql(
        f"select typeof(response_token_ids), typeof(reward), sum(len(response_token_ids)) from '{path}' group by all"
    )
    total = sum(len(row.response_token_ids) for row in make_rollouts(seed=4))
    assert rows.fetchall() == [("INTEGER[]", "FLOAT", total)]
