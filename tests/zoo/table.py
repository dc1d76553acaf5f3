"""The architectures: what is changed in a transformers config to make a network of a few thousand parameters of each."""

from dataclasses import dataclass, field
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
"""Of every model, as far as its config knows the name."""

EXPERTS: dict[str, Any] = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
STATE: dict[str, Any] = {"state_size": 4, "expand": 2, "conv_kernel": 4, "time_step_rank": 4}
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
}
SLIDING = ["sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Architecture:
    """One row of the table. model_type: as transformers' AutoConfig names it; group: under which docs/models.md lists it."""

    name: str
    model_type: str
    group: str
    changes: dict[str, Any] = field(default_factory=dict)
    quick: bool = False


DENSE, MIXTURE, RECURRENT, ROPE = "Dense", "Mixture of experts", "Hybrid and recurrent", "Scaled positions"


def _dense() -> list[Architecture]:
    plain = [
        *("llama", "mistral", "qwen2", "qwen3", "olmo", "olmo2", "olmo3", "phi", "phi3", "smollm3", "glm", "glm4", "granite"),
        *(
            "gemma",
            "cohere",
            "stablelm",
            "starcoder2",
            "nemotron",
            "seed_oss",
            "exaone4",
            "ernie4_5",
            "hunyuan_v1_dense",
            "apertus",
        ),
        *("helium", "arcee"),
    ]
    changed = {
        "gemma2": {"query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": SLIDING},
        "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": SLIDING},
        "cohere2": {"sliding_window": 8, "layer_types": SLIDING},
        "gpt2": {"n_positions": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 96},
        "gpt_neox": {"num_key_value_heads": 4},
        "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
        "bloom": {"n_layer": 2, "n_head": 4},
        "falcon": {"num_kv_heads": 2, "new_decoder_architecture": True, "head_dim": None},
        "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 256},
    }
    rows = [Architecture(name, name, DENSE, quick=name == "llama") for name in plain]
    rows += [Architecture(name, name, DENSE, changes, name == "gemma3_text") for name, changes in changed.items()]
    return [*rows, Architecture("mistral, sliding window", "mistral", DENSE, {"sliding_window": 8})]


def _mixtures() -> list[Architecture]:
    latent = {
        **EXPERTS,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 24,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
    }
    changed = {
        "qwen3_moe": EXPERTS,
        "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 48},
        "mixtral": {**EXPERTS, "output_router_logits": True},
        "olmoe": EXPERTS,
        "gpt_oss": {**EXPERTS, "sliding_window": 8, "layer_types": SLIDING},
        "llama4_text": {**EXPERTS, "num_experts_per_tok": 1, "intermediate_size_mlp": 96},
        "deepseek_v2": latent,
        "deepseek_v3": latent,
        "glm4_moe": {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
        "granitemoe": EXPERTS,
        "phimoe": EXPERTS,
    }
    return [Architecture(name, name, MIXTURE, changes, name == "mixtral") for name, changes in changed.items()]


def _recurrent() -> list[Architecture]:
    heads = {
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_d_ssm": 128,
        "mamba_expand": 2,
    }
    changed = {
        "qwen3_5_text": LINEAR,
        "qwen3_next": {**LINEAR, **EXPERTS, "shared_expert_intermediate_size": 48},
        "mamba": STATE,
        "mamba2": {**STATE, "num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16},
        "falcon_mamba": STATE,
        "falcon_h1": heads,
        "bamba": {**heads, "attn_layer_indices": [1]},
        "jamba": {**EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4},
        "granitemoehybrid": {**heads, **EXPERTS, "shared_intermediate_size": 48, "layer_types": ["mamba", "attention"]},
        "lfm2": {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]},
        "recurrent_gemma": {"lru_width": 64, "attention_window_size": 8, "block_types": ["recurrent", "attention"]},
        "zamba2": {**heads, "hybrid_layer_ids": [1], "layers_block_type": ["mamba", "hybrid"]},
        "minimax": {**EXPERTS, "layer_types": ["linear_attention", "full_attention"], "block_size": 8},
        "xlstm": {"num_heads": 4},
        "rwkv": {"attention_hidden_size": 64, "context_length": 256},
    }
    return [
        Architecture(name, name, RECURRENT, changes, name in {"qwen3_5_text", "mamba"}) for name, changes in changed.items()
    ]


def _ropes() -> list[Architecture]:
    long = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 128,
    }
    scaled = {
        "phi3, LongRoPE": ("phi3", {"rope_parameters": long, "original_max_position_embeddings": 128}),
        "llama, YaRN": ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}}),
        "llama, dynamic NTK": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}),
        "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    }
    return [Architecture(name, kind, ROPE, changes, "Long" in name) for name, (kind, changes) in scaled.items()]


TABLE = (*_dense(), *_mixtures(), *_recurrent(), *_ropes())
