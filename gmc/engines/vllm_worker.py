"""What runs inside vLLM's workers: taking new weights, naming wrong layers, and keeping padded ids from being sampled.

Imported by vLLM under these names; it needs the `vllm` extra.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

EXTENSION = f"{__name__}.WeightsExtension"
VOCABULARY_MASK = f"{__name__}:VocabularyMask"
VOCABULARY_KEY = "gmc_vocabulary_size"


class WeightsExtension:
    """Methods added to vLLM's worker class; called by name on every worker."""

    model_runner: Any

    def gmc_take_weights(self, weights: Mapping[str, Tensor] | str) -> None:
        """Load weights in place, from tensors of this process or from a safetensors file.

        vLLM's own reload renews what a layer packed when it was loaded, but not the head of a model that ties it to the
        embedding: on a CPU that head keeps a packed copy of the old embedding. It is packed again here.
        """
        self.model_runner.reload_weights(weights_iterator=_pairs(weights))
        _repack_heads(self.model_runner.get_model())

    def gmc_wrong_layers(self, weights: Mapping[str, Tensor] | str) -> list[tuple[str, float]]:
        """Layers whose output on random input is not that of `weights`, with the relative error, worst first.

        Only for one worker, whose layers are whole. Layers whose name or kind is unknown are left out.
        """
        model = self.model_runner.get_model()
        given = dict(_pairs(weights))
        found = []
        with torch.inference_mode():
            for name, module in model.named_modules():
                members = _members(name, model.packed_modules_mapping if hasattr(model, "packed_modules_mapping") else {})
                parts = [given[f"{member}.weight"] for member in members if f"{member}.weight" in given]
                if len(parts) == len(members) and hasattr(module, "quant_method"):
                    error = _relative_error(module, torch.cat(parts))
                    if error > 0.02:
                        found.append((name, error))
        return sorted(found, key=lambda item: -item[1])


class VocabularyMask(LogitsProcessor):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """Gives ids beyond the tokenizer's vocabulary (rows that pad the head) probability zero."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._size = int(vllm_config.additional_config[VOCABULARY_KEY])

    def apply(self, logits: Tensor) -> Tensor:
        logits[:, self._size :] = -torch.inf
        return logits

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass


def _repack_heads(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)


def _pairs(weights: Mapping[str, Tensor] | str) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(weights, str):
        yield from weights.items()
        return
    with safe_open(Path(weights), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a dict)
            yield name, file.get_tensor(name)


def _members(name: str, packed: Mapping[str, list[str]]) -> list[str]:
    """The Hugging Face modules that a vLLM module holds: qkv_proj holds q_proj, k_proj and v_proj."""
    parent, _, last = name.rpartition(".")
    return [f"{parent}.{member}" if parent else member for member in packed.get(last, [last])]


def _relative_error(module: nn.Module, weight: Tensor) -> float:
    """Relative error of a linear layer or an embedding of vLLM's against the Hugging Face weight (its bias cancels)."""
    layer: Any = module
    dtype, device = layer.params_dtype, weight.device
    if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead):
        ids = torch.arange(min(64, weight.shape[0]), device=device)
        expected, actual = weight[ids].to(dtype), layer(ids)
    else:
        x = torch.randn(4, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(device=device, dtype=dtype)
        expected = nn.functional.linear(x, weight.to(dtype))
        actual = layer.quant_method.apply(module, x)[:, : weight.shape[0]]
    return float((actual.float() - expected.float()).norm() / expected.float().norm())
