"""A model's files, before anything is built from them: what they are, and what of them would be used unseen."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from gmc.errors import DataError, UsageError
from gmc.loading.refusals import refusing

ADAPTER = "adapter_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def require_model_folder(folder: Path) -> None:
    """Raise `DataError` for a folder that holds no model, no weights, or a model and an adapter, of which only one is meant."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: no config.json in it, so it is not a Hugging Face model folder.")
    weights = [path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_model")]
    if (folder / ADAPTER).is_file():
        raise DataError(
            f"{folder}: holds a whole model (config.json) and an adapter ({ADAPTER}), and which of them is meant nobody can "
            "tell; move the adapter's files to a folder of their own, or away."
        )
    if not weights:
        raise DataError(f"{folder}: no weights (*.safetensors) in it; save the model there with save_pretrained.")


def folder_notes(folder: Path) -> list[str]:
    """One line for each thing about the files that a person should know."""
    if (folder / WEIGHTS).is_file() and (folder / INDEX).is_file():
        return [f"holds {WEIGHTS} and {INDEX}; {WEIGHTS} is read and the parts that the index names are not"]
    return []


def read_config(folder: str, trust_remote_code: bool) -> dict[str, Any]:
    """config.json as plain values, of a folder or a hub name. Raises `DataError` or `UsageError` when it cannot be read."""
    with refusing(folder, "model", trust_remote_code):
        config, _ = PretrainedConfig.get_config_dict(folder)
        if not isinstance(config, dict):
            raise ValueError("config.json is not a table of settings")
        return config


def require_own_kernels(folder: str, config: Mapping[str, Any], trust_remote_code: bool) -> None:
    """Raise `UsageError` for a config that names code on the hub as its attention or experts: it would be fetched and run."""
    foreign = [f"{key} = {value!r}" for key, value in _implementations(config) if "/" in value]
    if foreign and not trust_remote_code:
        raise UsageError(
            f"{folder}: its config.json asks for a kernel from the hub ({foreign[0]}), which is foreign code; take the entry "
            "out, or read the code and set model.trust_remote_code = true."
        )


def _implementations(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if key.endswith(("_implementation", "_implementation_internal")):
            found = value.values() if isinstance(value, Mapping) else [value]
            yield from ((key, each) for each in found if isinstance(each, str))
        elif isinstance(value, Mapping):
            yield from _implementations(value)


def quantization(config: Mapping[str, Any]) -> str:
    """How the weights are quantized, as the config names it ("bitsandbytes", "gptq", …); "" for whole weights."""
    settings = config.get("quantization_config")
    return str(settings.get("quant_method", "unknown")) if isinstance(settings, Mapping) and settings else ""
