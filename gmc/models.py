"""A language model with everything gmc needs of it: network, tokenizer, end ids, vocabulary; loading and hashing."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gmc.errors import DataError, UsageError

EMBEDDED = "embedded"
"""The source name of the model that ships in the package."""


@dataclass
class LanguageModel:
    """A causal language model in float32 master weights, ready to sample from, to score with and to train.

    source: what the user named. end_token_ids: every end-of-sequence id of the generation config, the config and the
    tokenizer. vocabulary_size: len(tokenizer); the head may be padded beyond it, and those ids are never sampled.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: str
    end_token_ids: frozenset[int]
    vocabulary_size: int

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device

    @property
    def context_tokens(self) -> int | None:
        """Positions the network was built for, prompt and response together; None when its config names no limit."""
        limit = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    @property
    def full_attention(self) -> bool:
        """Whether every layer attends to the whole past: no sliding windows, no recurrent or linear layers."""
        config = self.network.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        if kinds is not None:
            return set(kinds) == {"full_attention"}
        return getattr(config, "sliding_window", None) is None and not getattr(self.network, "_is_stateful", False)

    @property
    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that training changes, in the network's order."""
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def weights(self) -> dict[str, Tensor]:
        """Every distinct parameter by its Hugging Face name (a tied head appears once), sharing storage with the network."""
        return {name: parameter.detach() for name, parameter in self.network.named_parameters()}


def embedded_model_path() -> Path:
    """The Hugging Face folder of the shipped model."""
    return Path(__file__).parent / "embedded" / "model"


def load_model(source: str | os.PathLike[str], *, device: str = "cpu", trust_remote_code: bool = False) -> LanguageModel:
    """Load a causal language model and its tokenizer: "embedded", a Hugging Face folder, or a hub name.

    Weights become float32 whatever their type on disk, and are only read from safetensors. Raises `DataError` for a folder
    that is missing, is no model, lacks weights or holds incomplete ones; `UsageError` for a name that is neither a folder
    nor a model on the hub, or whose code would have to be trusted.
    """
    name = os.fspath(source)
    folder = _folder_of(name)
    tokenizer = _load_tokenizer(folder, trust_remote_code)
    network = _load_network(folder, trust_remote_code)
    network.to(device)  # type: ignore[arg-type]
    network.train(False)
    vocabulary_size = len(tokenizer)
    rows = network.get_output_embeddings().weight.shape[0]  # type: ignore[no-untyped-call]
    if vocabulary_size > rows:
        raise DataError(
            f"{folder}: the tokenizer has {vocabulary_size} ids but the output layer only {rows} rows; "
            "use the tokenizer that belongs to these weights."
        )
    return LanguageModel(network, tokenizer, name, end_token_ids(network, tokenizer), vocabulary_size)


def load_tokenizer(source: str | os.PathLike[str], *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a model alone. Arguments and errors as for `load_model`."""
    return _load_tokenizer(_folder_of(os.fspath(source)), trust_remote_code)


def end_token_ids(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every end-of-sequence id that the generation config, the config or the tokenizer names (models may have several)."""
    named = (
        getattr(network.generation_config, "eos_token_id", None),
        getattr(network.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    )
    ids: set[int] = set()
    for value in named:
        if value is not None:
            ids.update(int(item) for item in (value if isinstance(value, list | tuple) else [value]))
    return frozenset(ids)


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes and float32 values, in the order of names. `LanguageModel.weights()` gives the mapping."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        values = weights[name].detach().to(device="cpu", dtype=torch.float32).contiguous()
        digest.update(f"{name}\0{tuple(values.shape)}\0".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 over every (token, id) pair, added and special tokens included, in the order of ids."""
    digest = hashlib.sha256()
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{index}\0{token}\0".encode())
    return digest.hexdigest()


def _folder_of(name: str) -> str:
    """The folder, or the hub name, behind a source. Raises `DataError` for a folder that is missing or holds no model."""
    folder = os.fspath(embedded_model_path()) if name == EMBEDDED else name
    if os.path.isdir(folder):
        _require_model_folder(Path(folder))
    elif _looks_like_path(folder):
        raise DataError(f"{folder}: no such folder. Name a Hugging Face model folder, a hub model or '{EMBEDDED}'.")
    return folder


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or name.count("/") > 1 or name in {".", ".."} or os.path.exists(name)


def _require_model_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: no config.json in it, so it is not a Hugging Face model folder.")
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"{folder}: no weights (*.safetensors) in it; save the model there with save_pretrained.")


def _load_tokenizer(folder: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(folder, "tokenizer", error, trust_remote_code) from error
    return tokenizer


def _load_network(folder: str, trust_remote_code: bool) -> PreTrainedModel:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise _refusal(folder, "model", error, trust_remote_code) from error
    network: PreTrainedModel
    network, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise DataError(f"{folder}: the weights lack {len(missing)} tensors, the first is {missing[0]}; save the model again.")
    return network


def _refusal(folder: str, part: str, error: Exception, trust_remote_code: bool) -> Exception:
    cause = _first_line(error)
    if not trust_remote_code and "trust_remote_code" in str(error):
        return UsageError(f"{folder}: this {part} brings its own code; read it, then set model.trust_remote_code = true.")
    if os.path.isdir(folder):
        return DataError(f"{folder}: cannot load the {part}: {cause}")
    return UsageError(f"model '{folder}': neither a folder here nor a {part} that can be fetched from the hub: {cause}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def autocast(network: PreTrainedModel, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[None]:
    """Autocast to `dtype` on the network's device, or nothing for None and float32."""
    enabled = dtype is not None and dtype != torch.float32
    context: contextlib.AbstractContextManager[None] = torch.autocast(network.device.type, dtype, enabled=enabled)
    return context


@contextlib.contextmanager
def attention(network: PreTrainedModel, name: str) -> Iterator[None]:
    """While this is open, the network's layers call the attention that transformers knows by this name."""
    config = network.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
