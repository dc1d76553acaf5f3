"""LoRA adapters over a network whose own weights stay as they are (Hu et al., arXiv 2106.09685), by the package peft."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from gmc.errors import DataError, UsageError
from gmc.loading.folder import ADAPTER
from gmc.loading.refusals import refusing

FACTORS = ("lora_A", "lora_B")
ONE_HOT_ROWS = 1024
"""Columns that a packed layer is asked for at once."""
ADAPTER_NAME = "default"
"""Peft's name for the only adapter there is."""


def attach_adapter(network: PreTrainedModel, *, rank: int, alpha: float, base: str) -> Any:
    """Put a new adapter under every linear layer but the head, in place: only its factors are trained from now on.

    Each layer then adds alpha / rank · B·A to its weight; B is zero, so the network is as it was. The factors are the same for
    the same network. base: where the network itself is loaded from. Returns peft's model, which saves the adapter. Raises
    `UsageError` without the package peft, and for a network that it cannot adapt.
    """
    peft = _peft()
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM", bias="none"
    )
    with torch.random.fork_rng(), refusing(base, "adapter", False):
        torch.manual_seed(0)
        adapter = peft.get_peft_model(network, config)
    adapter.peft_config[ADAPTER_NAME].base_model_name_or_path = base
    network.train(False)
    return adapter


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model of its own."""
    return (folder / ADAPTER).is_file() and not (folder / "config.json").is_file()


def adapter_base(folder: Path) -> str:
    """The model that an adapter belongs to, by name or folder. Raises `DataError` when the adapter does not say."""
    try:
        base = json.loads((folder / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{folder / ADAPTER}: does not name the model that this adapter belongs to; add it.") from error
    if not isinstance(base, str) or not base:
        raise DataError(f"{folder / ADAPTER}: base_model_name_or_path = {base!r}; name the model that this adapter belongs to.")
    return base


def load_adapter(network: PreTrainedModel, folder: Path) -> Any:
    """Put a saved adapter over its network, in place, ready to be trained further. Returns peft's model."""
    peft = _peft()
    with refusing(str(folder), "adapter", False):
        adapter = peft.PeftModel.from_pretrained(network, str(folder), is_trainable=True)
    network.train(False)
    return adapter


def base_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the network under an adapter, by the names that they have without it."""
    own = {name: tensor for name, tensor in weights.items() if not any(factor in name for factor in FACTORS)}
    return {name.replace(".base_layer.", "."): tensor for name, tensor in own.items()}


@torch.no_grad()
def merged_weights(network: PreTrainedModel, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole weights that do what the network does with its adapter: W + alpha / rank · B·A under each adapted layer.

    weights: the network's, as `LanguageModel.weights()` names them. The result has the names of the network without an adapter.
    It is computed in the dtype of the factors; weights that bitsandbytes packed are unpacked first.
    """
    merged = {}
    for name, module in network.named_modules():
        if FACTORS[0] not in module._modules:
            continue
        a, b = (weights[f"{name}.{factor}.{ADAPTER_NAME}.weight"] for factor in FACTORS)
        product = module.scaling[ADAPTER_NAME] * (b @ a)
        whole = _whole_weight(module.base_layer, weights[f"{name}.base_layer.weight"]).to(product.dtype)
        merged[f"{name}.weight"] = whole + (product.T if module.fan_in_fan_out else product)
    return base_weights(weights) | merged


def _whole_weight(layer: Any, stored: Tensor) -> Tensor:
    """The matrix of a layer, from the tensor that holds it; a packed one is asked for its columns by one-hot input.

    Its own arithmetic is then what counts, whatever the packing: bitsandbytes has another one for CPUs since 0.49, which its
    function for unpacking does not know.
    """
    if stored.is_floating_point():
        return stored
    width = int(layer.in_features)
    columns = []
    for first in range(0, width, ONE_HOT_ROWS):
        rows = torch.arange(first, min(first + ONE_HOT_ROWS, width), device=stored.device)
        applied = layer(torch.nn.functional.one_hot(rows, width).float())
        columns.append(applied if layer.bias is None else applied - layer.bias)
    return torch.cat(columns).T


def is_new(weights: Mapping[str, Tensor]) -> bool:
    """Whether an adapter changes nothing yet: every B is zero."""
    return not any(bool(tensor.any()) for name, tensor in weights.items() if FACTORS[1] in name)


def _peft() -> Any:
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it, and it warns of kernels that nothing here uses
    try:
        import peft
    except ImportError as error:
        raise UsageError(f"adapters need the package peft ({error}); pip install 'gmc-rl[lora]'") from error
    return peft
