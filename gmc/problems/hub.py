"""Rows of a data set that the `datasets` library loads: a hub name, or a folder of data files."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gmc.errors import DataError, UsageError
from gmc.hub import is_offline, use_cache_when_unreachable
from gmc.problems.rows import Row


def read_hub_rows(source: str, *, split: str | None) -> tuple[list[Row], str]:
    """(rows, split) of "owner/name", "owner/name:config" or a folder.

    Without `split`: the only split that has rows, else "train". Raises `DataError` naming the file to pass when the hub cannot
    be reached, `UsageError` when the choice of split is unclear or wrong.
    """
    name, config = source, None
    if not Path(source).is_dir():
        use_cache_when_unreachable()
        name, _, config_name = source.partition(":")
        config = config_name or None
    import datasets

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # our one line says what its warnings repeat
    try:
        loaded = datasets.load_dataset(name, config)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise _refusal(source, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    chosen = _choose_split(source, {key: len(value) for key, value in loaded.items()}, split)
    return [Row(record, f"row {number}") for number, record in enumerate(_records(loaded[chosen]), start=1)], chosen


def require_data_set(source: str) -> None:
    """Raise `DataError` where the hub cannot be reached and no cache holds this data set. Imports nothing heavy."""
    use_cache_when_unreachable()
    name = source.partition(":")[0]
    if is_offline() and not any(_caches(name)):
        raise _refusal(source, "the hub cannot be reached, and it is not in the cache")


def _caches(name: str) -> Iterator[Path]:
    """Where the hub's client and the library keep a data set, as far as it is there."""
    from huggingface_hub import constants

    yield from Path(constants.HF_HUB_CACHE).glob(f"datasets--{name.replace('/', '--')}/snapshots/*")
    kept = Path(os.environ.get("HF_DATASETS_CACHE", Path(constants.HF_HOME) / "datasets"))
    yield from (path for path in kept.glob("*") if path.name.lower() == name.replace("/", "___").lower())


def _refusal(source: str, reason: str) -> DataError:
    return DataError(
        f"{source}: could not load this data set ({reason}); without network, download its file "
        "elsewhere and give that .jsonl, .json, .parquet or .csv file: --problems FILE, for a benchmark --bench-data FOLDER"
    )


def _choose_split(source: str, sizes: dict[str, int], split: str | None) -> str:
    listed = ", ".join(f"{name} ({count} rows)" for name, count in sizes.items())
    if split is not None:
        if split not in sizes:
            raise UsageError(f"{source}: no split {split!r}; it has {listed}")
        return split
    filled = [name for name, count in sizes.items() if count]
    if len(filled) == 1:
        return filled[0]
    if "train" in filled:
        return "train"
    raise UsageError(f"{source}: choose a split with --split; it has {listed}")


def _records(dataset: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = dataset.with_format("arrow")[:].to_pylist()
    return records
