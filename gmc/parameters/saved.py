"""Tensors that several processes write together: torch.distributed.checkpoint with its safetensors files, and no pickle.

Each process writes one file with its parts; a file says of each part where it lies in its tensor. So any number of processes
can read them, each the parts that it holds, also one that holds all.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from gmc.errors import DataError
from gmc.registry import in_one_line


def write_parts(folder: Path, tensors: Mapping[str, Tensor], group: Any) -> None:
    """Write a folder together with the other processes of `group`, durably; returns when all have written.

    A tensor that is not distributed has to be the same everywhere and is written once.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(dict(tensors), storage_writer=writer, process_group=group)


def own_files(folder: Path, rank: int) -> list[Path]:
    """What this rank has written with `write_parts`."""
    return sorted(folder.glob(f"shard-{rank + 1:05d}-*.safetensors"))


def read_parts(folder: Path, empty: Callable[[str, torch.Size, torch.dtype], Tensor], group: Any = None) -> dict[str, Tensor]:
    """Read what `write_parts` wrote, together with the processes of `group`, or alone with None.

    empty: makes the tensor, distributed or whole, that takes one of this name, whole shape and type. Raises `DataError` for a
    folder that cannot be read.
    """
    try:
        saved: dict[str, Any] = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        tensors = {key: empty(key, each.size, each.properties.dtype) for key, each in saved.items()}
        reader = HuggingFaceStorageReader(str(folder))
        load(tensors, storage_reader=reader, process_group=group, no_dist=group is None)
    except (
        CheckpointException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        AssertionError,
        SafetensorError,
    ) as error:
        raise DataError(f"{folder}: cannot be read ({in_one_line(error)}); restore it from a copy") from error
    return tensors
