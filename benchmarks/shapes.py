"""The batches and models that every contender is timed on. Imports neither gmc nor a trainer, so all of them can read it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SMOLLM2 = {
    "model_type": "llama",
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_theta": 100_000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
"""The shape of SmolLM2-135M; random weights cost the same time as trained ones."""

QWEN3_1_7B = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
}
# Heads of 32, because vLLM on a CPU refuses 16 in bfloat16.
TINY = {**QWEN3_1_7B, "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {"smollm2-135m": SMOLLM2, "qwen3-1.7b": QWEN3_1_7B, "tiny": TINY}


@dataclass(frozen=True)
class Shape:
    """Groups of responses of one benchmark. model: "embedded" or a key of `CONFIGS`. Lengths are in tokens. peer_rows:
    responses in one of the peer's micro-batches where a whole group would need more than 24 GB."""

    name: str
    model: str
    groups: int
    group_size: int
    prompt_tokens: tuple[int, int]
    response_tokens: tuple[int, int]
    median_response: float
    token_budget: int
    peer_rows: int | None = None

    def batch(self, vocabulary_size: int) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Prompts and responses of random tokens, the same in every process. Response lengths are lognormal (spread 0.6),
        cut to the shape's range."""
        generator = torch.Generator().manual_seed(0)

        def tokens(length: int) -> list[int]:
            return torch.randint(3, vocabulary_size, (length,), generator=generator).tolist()

        low, high = self.prompt_tokens
        prompts = [tokens(int(torch.randint(low, high + 1, (1,), generator=generator))) for _ in range(self.groups)]
        spread = torch.randn(self.groups, self.group_size, generator=generator).mul(0.6).exp() * self.median_response
        lengths = spread.round().int().clamp(*self.response_tokens).tolist()
        return prompts, [[tokens(length) for length in group] for group in lengths]

    def rewards(self) -> torch.Tensor:
        """Half of every group is right, so no row may be skipped: rewards_PG."""
        return (torch.arange(self.group_size) % 2).float().expand(self.groups, -1).clone()


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("embedded", "embedded", 8, 8, (16, 32), (6, 64), 24, 4096),
        Shape("paper-like", "smollm2-135m", 4, 8, (300, 300), (20, 200), 80, 1536),
        Shape("paper-like, 1 group", "smollm2-135m", 1, 8, (300, 300), (20, 200), 80, 1536),
        Shape("long", "smollm2-135m", 1, 8, (64, 64), (64, 1024), 420, 2048, peer_rows=2),
        Shape("paper-like, 1.7B", "qwen3-1.7b", 4, 8, (300, 300), (20, 200), 80, 8192),
        Shape("long, 1.7B", "qwen3-1.7b", 1, 8, (64, 64), (64, 1024), 420, 8192),
        Shape("smoke", "tiny", 2, 4, (8, 12), (2, 16), 6, 64),
    )
}


def write_model(name: str, folder: Path, *, unused_ids: int = 0) -> Path:
    """A model folder of random float32 weights with the given config, and a tokenizer of as many ids, or so many fewer."""
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    settings = dict(CONFIGS[name])
    config = CONFIG_MAPPING[settings.pop("model_type")](**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    special = {"<pad>": 0, "<s>": 1, "</s>": 2}
    vocabulary = {**special, **{f"t{index}": index for index in range(3, config.vocab_size - unused_ids)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


def vocabulary_of(folder: Path) -> int:
    """Ids a model folder's batch may use."""
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])
