"""Recipes fit the GPU that their comment names, by the sums of `gmc train --plan`, alone and beside sampling processes; and
what those sums say of activations holds for a real shape."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, Qwen3Config

from gmc.resolving.memory import GIB, GPUS, fitted_plan
from gmc.resolving.resolve import resolve_settings
from gmc.scoring import memory
from gmc.scoring.memory import fake_network, saved_bytes

pytestmark = [pytest.mark.train, pytest.mark.slow]

RECIPES = sorted(Path(__file__).parent.parent.glob("recipes/*-qwen3-*.toml"))
# Hidden and intermediate size, layers, heads, tied head: from the models' configs (Qwen3 technical report, arXiv 2505.09388).
SHAPES = {
    "Qwen/Qwen3-1.7B-Base": (2048, 6144, 28, 16, True),
    "Qwen/Qwen3-4B-Base": (2560, 9728, 36, 32, True),
    "Qwen/Qwen3-8B-Base": (4096, 12288, 36, 32, False),
}


TOKENS = 2048
"""Of the micro-batch whose bytes are counted beside the estimate."""


def write_configs(folder):
    """A folder with the config, and no weights, for each model."""
    for name, (hidden, intermediate, layers, heads, tied) in SHAPES.items():
        config = Qwen3Config(
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=8,
            head_dim=128,
            vocab_size=151936,
            tie_word_embeddings=tied,
            architectures=["Qwen3ForCausalLM"],
        )
        config.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    return write_configs(tmp_path_factory.mktemp("configs"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_fits_the_gpu_that_it_names(recipe, configs):
    (size,) = re.findall(r"^# GPU: (\d+ GB)", recipe.read_text("utf-8"), re.MULTILINE)
    (source,) = re.findall(r'^source = "(Qwen/\S+)"', recipe.read_text("utf-8"), re.MULTILINE)
    device = ["model.device=cuda", "train.tokens_per_micro_batch=auto", "train.activation_checkpointing=auto"]
    for extra in ([], ['rollout.devices=["1"]']):
        settings = resolve_settings(
            recipe=str(recipe), flags={"model.source": str(configs / source)}, assignments=[*device, *extra]
        )
        plan = fitted_plan(settings, int(GPUS[size] * GIB))
        assert plan.fits, (extra, plan.record())


def count_beside_line(config, dtype, *, checkpointing):
    """Bytes that a pass over `TOKENS` tokens saves, counted, and as the line through two much smaller counts says."""
    network = fake_network(config)
    counted = memory._count(network, dtype, checkpointing, TOKENS)
    return counted, saved_bytes(network, dtype, checkpointing=checkpointing).of(TOKENS)


def test_the_estimate_of_a_real_shape_is_what_a_pass_of_2048_tokens_saves(configs):
    """The smallest one, as its recipes train it; all of them: python -m tests.full memory."""
    config = AutoConfig.from_pretrained(configs / "Qwen/Qwen3-1.7B-Base")
    counted, line = count_beside_line(config, torch.bfloat16, checkpointing=True)
    assert counted == line > TOKENS * config.num_hidden_layers * config.hidden_size * 4  # each layer's input at least


def test_recipes_are_there():
    assert len(RECIPES) >= 9
