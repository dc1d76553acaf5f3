"""A language model with everything gmc needs of it: network, tokenizer, end ids, vocabulary; loading and hashing."""

import contextlib
import copy
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gmc.config.fields import EMBEDDED
from gmc.errors import DataError, UsageError
from gmc.loading.adapter import adapter_base, attach_adapter, base_weights, is_adapter, is_new, load_adapter
from gmc.loading.checks import position_limit, require_causal, require_finite
from gmc.loading.folder import ADAPTER, folder_notes, quantization, read_config, require_model_folder, require_own_kernels
from gmc.loading.named import require_model
from gmc.loading.refusals import refusing


@dataclass
class LanguageModel:
    """A causal language model in float32 master weights, ready to sample from, to score with and to train.

    source: what the user named. end_token_ids: every end-of-sequence id of the generation config, the config and the
    tokenizer. vocabulary_size: one more than the tokenizer's largest id; the head may be padded beyond it. Neither those ids
    nor absent_ids, those below it that are no token, are ever sampled. position_limit: positions up to which a text's
    log-probs depend on it alone, None for all. quantized: how the weights are, "" for whole ones. notes: what a person should
    know of the model, a line each. adapter: peft's model where an adapter is trained, None where all weights are.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: str
    end_token_ids: frozenset[int]
    vocabulary_size: int
    absent_ids: tuple[int, ...] = ()
    position_limit: int | None = None
    quantized: str = ""
    notes: tuple[str, ...] = ()
    adapter: Any = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device

    @property
    def context_tokens(self) -> int | None:
        """Positions for prompt and response together: those the network was built for, or those that mean the same whatever
        stands beside them, if fewer. None when its config names no limit."""
        return self.position_limit or _built_for(self.network)

    @property
    def full_attention(self) -> bool:
        """Whether every layer attends to the whole past: no sliding windows, no recurrent or linear layers."""
        config = self.network.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        if kinds is not None:
            return set(kinds) == {"full_attention"}
        return getattr(config, "sliding_window", None) is None and not getattr(self.network, "_is_stateful", False)

    def weights(self) -> dict[str, Tensor]:
        """Every distinct parameter by its Hugging Face name (a tied head appears once), sharing storage with the network."""
        return {name: parameter.detach() for name, parameter in self.network.named_parameters()}


def embedded_model_path() -> Path:
    """The Hugging Face folder of the shipped model."""
    return Path(__file__).parent / "embedded" / "model"


def load_model(source: str | os.PathLike[str], *, device: str = "cpu", trust_remote_code: bool = False) -> LanguageModel:
    """Load a causal language model and its tokenizer: "embedded", a Hugging Face folder, or a hub name.

    Weights become float32 whatever their type on disk (quantized ones stay quantized), and are only read from safetensors.
    Raises `DataError` for a folder that is missing, is no causal language model, lacks weights or holds incomplete or NaN
    ones; `UsageError` for a name that is neither a folder nor a model on the hub, or whose code would have to be trusted.
    """
    name = os.fspath(source)
    folder = _folder_of(name)
    if is_adapter(Path(folder)):
        return _load_adapted(name, Path(folder), device, trust_remote_code)
    tokenizer = _load_tokenizer(folder, trust_remote_code)
    network, quantized = _load_network(folder, trust_remote_code)
    with refusing(folder, "model", trust_remote_code):
        ends, rows = end_token_ids(network, tokenizer), _head_rows(network)
    token_ids = sorted(set(tokenizer.get_vocab().values()))
    if token_ids[-1] >= rows:
        raise DataError(
            f"{folder}: the tokenizer has {token_ids[-1] + 1} ids but the output layer only {rows} rows; "
            "use the tokenizer that belongs to these weights."
        )
    with refusing(folder, "model", trust_remote_code):
        network.to(device)  # type: ignore[arg-type]
        require_finite(network, folder)
        require_causal(network, folder, token_ids)
        limit = position_limit(network, folder, _built_for(network), token_ids)
    absent = tuple(sorted(set(range(token_ids[-1])) - set(token_ids)))
    notes = (*folder_notes(Path(folder)), *_notes(ends & set(token_ids), limit))
    return LanguageModel(network, tokenizer, name, ends, token_ids[-1] + 1, absent, limit, quantized, notes)


def _load_adapted(name: str, folder: Path, device: str, trust_remote_code: bool) -> LanguageModel:
    """The model of an adapter's folder: its base with the adapter over it, and the base's tokenizer."""
    base = adapter_base(folder)
    if os.path.isdir(base) and is_adapter(Path(base)):
        raise DataError(f"{folder}: is an adapter over an adapter ({base}); name the model under both.")
    try:
        model = load_model(base, device=device, trust_remote_code=trust_remote_code)
    except UsageError as error:
        raise UsageError(f"{folder / ADAPTER}: names a model that is not there: {error}") from error
    model.source, model.adapter = name, load_adapter(model.network, folder)
    require_finite(model.network, name)
    return model


def with_adapter(model: LanguageModel, *, rank: int, alpha: float) -> LanguageModel:
    """The same model, of which from now on only a new LoRA adapter of this rank is trained.

    Raises `UsageError` when it has one already, or the package peft is missing.
    """
    if model.adapter is not None:
        raise UsageError(f"model.lora.rank = {rank}: {model.source} is an adapter already; leave the rank out to train it on")
    folder = _folder_of(model.source)
    base = os.path.abspath(folder) if os.path.isdir(folder) else folder
    model.adapter = attach_adapter(model.network, rank=rank, alpha=alpha, base=base)
    return model


def private_copy(model: LanguageModel, dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A copy on the CPU that training does not reach: what training changes is copied, in `dtype`, the rest is shared.

    An adapter is small and stays in float32.
    """
    kept = dtype if model.adapter is None else torch.float32
    known: dict[int, Any] = {}
    for parameter in model.network.parameters():
        if parameter.requires_grad:
            taken = parameter.detach().to("cpu", kept, copy=True)
            known[id(parameter)] = torch.nn.Parameter(taken)
        else:
            known[id(parameter)] = parameter
    network, adapter = copy.deepcopy((model.network, model.adapter), known)
    return replace(model, network=network, adapter=adapter)


def _notes(reachable_ends: Collection[int], limit: int | None) -> Iterator[str]:
    if not reachable_ends:
        yield "names no end token that its tokenizer has; every response runs to the length limit"
    if limit is not None:
        yield (
            f"its rotary positions are rescaled where a text is longer than {limit} tokens, also for the texts beside it; "
            f"prompt and response together are limited to {limit}"
        )


def _built_for(network: PreTrainedModel) -> int | None:
    limit = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def _head_rows(network: PreTrainedModel) -> int:
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None:
        raise ValueError("it has no output layer over the vocabulary")
    return int(getattr(head, "out_features", 0) or head.weight.shape[0])


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


def random_ids(model: LanguageModel, length: int, generator: torch.Generator) -> list[int]:
    """Token ids that exist, drawn alike."""
    drawn = torch.randint(model.vocabulary_size - len(model.absent_ids), (length,), generator=generator).tolist()
    if not model.absent_ids:
        return list(drawn)
    known = sorted(set(range(model.vocabulary_size)) - set(model.absent_ids))
    return [known[place] for place in drawn]


def without_ids(logits_BV: Tensor, absent_ids: Sequence[int]) -> Tensor:
    """Logits with −inf at these ids, in the last dimension; the same tensor where there are none."""
    if not absent_ids:
        return logits_BV
    return logits_BV.index_fill(-1, torch.tensor(absent_ids, device=logits_BV.device), -torch.inf)


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes and float32 values, in the order of names. `LanguageModel.weights()` gives the mapping."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        values = weights[name].detach().to(device="cpu", dtype=torch.float32).contiguous()
        digest.update(f"{name}\0{tuple(values.shape)}\0".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def policy_hash(model: LanguageModel) -> str:
    """`weights_hash` of a model. An adapter that changes nothing yet leaves the hash of the model under it."""
    weights = model.weights()
    if model.adapter is not None and is_new(weights):
        weights = base_weights(weights)
    return weights_hash(weights)


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
        if not is_adapter(Path(folder)):
            require_model_folder(Path(folder))
    else:
        require_model(folder)
    return folder


def _load_tokenizer(folder: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    with refusing(folder, "tokenizer", trust_remote_code):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    return tokenizer


def _load_network(folder: str, trust_remote_code: bool) -> tuple[PreTrainedModel, str]:
    """The network in evaluation mode, and how its weights are quantized."""
    config = read_config(folder, trust_remote_code)
    require_own_kernels(folder, config, trust_remote_code)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with refusing(folder, "model", trust_remote_code):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
        network: PreTrainedModel
        network, report = loaded
        missing = sorted(report["missing_keys"])
    if missing:
        raise DataError(f"{folder}: the weights lack {len(missing)} tensors, the first is {missing[0]}; save the model again.")
    network.train(False)
    _plain_outputs(network)
    whole = getattr(network, "hf_quantizer", None) is None
    return network, "" if whole else quantization(config)


def _plain_outputs(network: PreTrainedModel) -> None:
    """Let a forward pass return logits in named fields and nothing else, whatever the config of its last training says."""
    for config in (network.config, network.config.get_text_config()):
        for name in ("output_router_logits", "output_attentions", "output_hidden_states"):
            if getattr(config, name, False):
                setattr(config, name, False)
        config.return_dict = True


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
