"""The Arrow schema of a shard and its file-level record. Version 2; version 1 is read as well.

A shard is an ordinary Parquet file; the record is one JSON object under the key `gmc` of the file's own metadata.
"""

from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from gmc.errors import DataError, plain_words
from gmc.store.shards.rollout import SCHEMA_VERSION, ShardMetadata

METADATA_KEY = b"gmc"

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string()),
        pa.field("problem_id", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("group", pa.int32()),
        pa.field("sample", pa.int32()),
        pa.field("policy_version", pa.int64()),
        pa.field("prompt_token_ids", pa.list_(pa.int32())),
        pa.field("response_token_ids", pa.list_(pa.int32())),
        pa.field("finish_reason", pa.string()),
        pa.field("reward", pa.float32()),
        pa.field("status", pa.string()),
        pa.field("answer", pa.string()),
        pa.field("prediction", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("response", pa.string()),
        pa.field("engine_logprobs", pa.list_(pa.float32())),
        pa.field("trainer_logprobs", pa.list_(pa.float32())),
        pa.field("trainer_entropies", pa.list_(pa.float32())),
        pa.field("launched_at", pa.float64()),
        pa.field("ready_at", pa.float64()),
        pa.field("response_mask", pa.list_(pa.bool_())),
        pa.field("token_versions", pa.list_(pa.int64())),
        pa.field("reward_parts", pa.list_(pa.float32())),
        pa.field("note", pa.string()),
        pa.field("turns", pa.list_(pa.string())),
    ]
)

# Null in every row of a file, or in none; a file may also leave such a column out.
WHOLE_COLUMNS = ("engine_logprobs", "trainer_logprobs", "trainer_entropies", "launched_at", "ready_at", "reward_parts")
# Null wherever there is nothing to say; a file may leave out those that version 1 does not have.
NULLABLE_COLUMNS = ("prediction", "response_mask", "token_versions", "note", "turns")
OPTIONAL_COLUMNS = (*WHOLE_COLUMNS, "response_mask", "token_versions", "note", "turns")
READABLE_VERSIONS = (1, SCHEMA_VERSION)
OLD_NAMES = {"status": "grade"}
"""What a column is called in a file of version 1."""
# For people: what the token ids say, decoded.
TEXT_COLUMNS = ("prompt", "response")
LOGPROB_COLUMNS = {"engine": "engine_logprobs", "trainer": "trainer_logprobs"}
FINISH_REASONS = ("stop", "length")

_METADATA = TypeAdapter(ShardMetadata)
_JSON_OBJECT = TypeAdapter(dict[str, Any])


def encode_metadata(metadata: ShardMetadata) -> dict[bytes, bytes]:
    """The file's key-value metadata."""
    return {METADATA_KEY: _METADATA.dump_json(metadata)}


def decode_metadata(origin: str, key_values: dict[bytes, bytes] | None) -> ShardMetadata:
    """The record of a file, checked.

    Raises `DataError` naming `origin` when the file holds none, when it belongs to another schema version (checked before
    anything else, since a later version may hold other entries) or when an entry is missing or has the wrong type.
    """
    raw = (key_values or {}).get(METADATA_KEY)
    if raw is None:
        raise DataError(
            f"{origin}: not a gmc shard, the file's metadata has no entry {METADATA_KEY.decode()!r}. "
            "Write shards with `gmc rollout`, or see docs/shards.md for writing them with other tools."
        )
    version = _peek_version(origin, raw)
    if version not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise DataError(
            f"{origin}: written with shard schema version {version!r}, this gmc reads versions {readable}. "
            "Generate the rollouts again, or install the gmc version that wrote the file."
        )
    try:
        return _METADATA.validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        reason = "it is missing" if first["type"] == "missing" else plain_words(first["msg"])
        raise DataError(f"{origin}: the shard's metadata entry {name!r} is bad ({reason}). Write the file again.") from error


def _peek_version(origin: str, raw: bytes) -> Any:
    try:
        record = _JSON_OBJECT.validate_json(raw)
    except ValidationError as error:
        raise DataError(f"{origin}: the shard's metadata is not a JSON object. Write the file again.") from error
    return record.get("schema_version")
