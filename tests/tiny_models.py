"""Tiny random language models for tests: a Qwen3 of a few thousand parameters and a tokenizer of single characters."""

import string
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gmc.models import LanguageModel

CHARACTERS = string.digits + string.ascii_lowercase + " +-*=.\n"
SPECIAL = ("<pad>", "<end>", "<turn>")


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One id a character after three special ids; <end> is the end of sequence."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<end>")


def tiny_network(seed: int = 0, *, scale: float = 4.0, **changes: Any) -> Qwen3ForCausalLM:
    """A random Qwen3 whose next-token distributions are far from uniform; its head is padded beyond the tokenizer."""
    settings: dict[str, Any] = {
        "vocab_size": len(SPECIAL) + len(CHARACTERS) + 5,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": [1, 2],
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    torch.manual_seed(seed)
    network = Qwen3ForCausalLM(Qwen3Config(**{**settings, **changes})).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    return network


def tiny_model(seed: int = 0, **changes: Any) -> LanguageModel:
    """A `LanguageModel` around `tiny_network` with two end ids."""
    tokenizer = character_tokenizer()
    return LanguageModel(tiny_network(seed, **changes), tokenizer, "tiny", frozenset({1, 2}), len(tokenizer))
