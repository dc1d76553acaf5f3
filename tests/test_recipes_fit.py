"""Recipes fit the GPU that their comment names, by the sums of `gmc train --plan`, alone and beside sampling processes."""

import re
from pathlib import Path

import pytest
from transformers import Qwen3Config

from gmc.resolving.memory import GIB, GPUS, fitted_plan
from gmc.resolving.resolve import resolve_settings

pytestmark = [pytest.mark.train, pytest.mark.slow]

RECIPES = sorted(Path(__file__).parent.parent.glob("recipes/*-qwen3-*.toml"))
# Hidden and intermediate size, layers, heads, tied head: from the models' configs (Qwen3 technical report, arXiv 2505.09388).
SHAPES = {
    "Qwen/Qwen3-1.7B-Base": (2048, 6144, 28, 16, True),
    "Qwen/Qwen3-4B-Base": (2560, 9728, 36, 32, True),
    "Qwen/Qwen3-8B-Base": (4096, 12288, 36, 32, False),
}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """A folder with the config, and no weights, for each model."""
    folder = tmp_path_factory.mktemp("configs")
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


def test_recipes_are_there():
    assert len(RECIPES) >= 9
