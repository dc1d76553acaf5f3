"""Decoding of small plain networks by their few matrices: the samples of a literal loop, and only where that is right."""

import bisect
import itertools
import math

import pytest
import torch
import transformers
from tiny_models import character_tokenizer, tiny_model

from gmc.engines.base import Sampling
from gmc.engines.plain_probe import decodable_structure
from gmc.engines.plain_state import Blocks, PlainState
from gmc.engines.sampling import uniform_noise
from gmc.engines.transformers import TransformersEngine
from gmc.models import LanguageModel
from gmc.plain.decoder import PlainDecoder

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17]]
SEEDS = [1, 2, 3]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip


def random_model(kind, **changes):
    """A random network of this transformers architecture, far from uniform, with biases that are not zero."""
    tokenizer = character_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer) + 3, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "eos_token_id": 1,
        "pad_token_id": 0, "bos_token_id": None,
    }  # fmt: skip
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **changes})
    network = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.15 if parameter.ndim > 1 or "bias" in name else parameter)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return LanguageModel(network, tokenizer, kind, frozenset({1, 2}), len(tokenizer))


PLAIN = {
    "Qwen3": {},
    "Qwen3, every head its own key": {"num_key_value_heads": 4},
    "Qwen3, one key head": {"num_key_value_heads": 1, "head_dim": 16},
    "Llama": {},
    "Llama, biases": {"attention_bias": True, "mlp_bias": True},
    "Llama, untied": {"tie_word_embeddings": False},
    "Llama, stretched positions": {"rope_parameters": LLAMA3},
    "Qwen2": {},
    "Mistral": {"sliding_window": None},
}


def plain_model(name):
    return random_model(name.split(",")[0], **PLAIN[name])


def literal_sample(model, prompt, seed, sample, sampling):
    """One response, one token at a time: the whole text through the network's own forward, the distribution in plain floats."""
    noise = uniform_noise([seed], [sample], sampling.max_tokens)[0].tolist()
    said, logps = [], []
    for uniform in noise:
        with torch.no_grad():
            logits = model.network(torch.tensor([prompt + said])).logits[0, -1, : model.vocabulary_size].double().tolist()
        if sampling.temperature == 0:
            said.append(max(range(len(logits)), key=logits.__getitem__))
            logps.append(0.0)
        else:
            scaled = [value / sampling.temperature for value in logits]
            weights = [math.exp(value - max(scaled)) for value in scaled]
            cumulative = list(itertools.accumulate(weights))
            said.append(bisect.bisect_right(cumulative, uniform * cumulative[-1]))
            logps.append(math.log(weights[said[-1]] / cumulative[-1]))
        text = model.tokenizer.decode(said, skip_special_tokens=False)
        if said[-1] in model.end_token_ids or any(stop in text for stop in sampling.stop):
            return said, logps, "stop"
    return said, logps, "length"


def check_against_the_literal_loop(model, sampling, group_size=4):
    """Compares every sample; returns the finish reasons that occurred."""
    groups = TransformersEngine(model).generate(PROMPTS, group_size=group_size, sampling=sampling, seeds=SEEDS)
    for prompt, seed, group in zip(PROMPTS, SEEDS, groups, strict=True):
        assert len(group) == group_size
        for sample, completion in enumerate(group):
            said, logps, reason = literal_sample(model, prompt, seed, sample, sampling)
            assert (completion.token_ids, completion.finish_reason) == (said, reason)
            assert completion.logprobs == pytest.approx(logps, abs=1e-4)
    return {completion.finish_reason for group in groups for completion in group}


@pytest.mark.parametrize("name", PLAIN)
def test_every_sample_is_that_of_a_literal_loop(name):
    model = plain_model(name)
    assert decodable_structure(model) is not None
    assert check_against_the_literal_loop(model, Sampling(max_tokens=14)) == {"stop", "length"}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=1),
        Sampling(max_tokens=12, temperature=0.7),
        Sampling(max_tokens=12, temperature=0),
        Sampling(max_tokens=12, stop=("a", "7b")),
    ],
    ids=["one token", "temperature", "greedy", "stop strings"],
)
def test_samples_equal_a_literal_loop_however_they_end(sampling):
    reasons = check_against_the_literal_loop(plain_model("Qwen3"), sampling, group_size=9)
    assert "stop" in reasons or sampling.max_tokens == 1


def test_a_batch_in_which_every_sample_ends_early():
    model = plain_model("Llama")
    everything = LanguageModel(model.network, model.tokenizer, "ends", frozenset(range(0, 44, 2)), 44)
    assert check_against_the_literal_loop(everything, Sampling(max_tokens=40)) == {"stop"}


NOT_PLAIN = {
    "Mistral": {"sliding_window": 6},
    "Gemma": {},
    "Gemma2": {"sliding_window": 6},
    "Granite": {"residual_multiplier": 0.7, "logits_scaling": 2.0},
    "SmolLM3": {"no_rope_layers": [1, 0], "use_sliding_window": False},
    "Olmo2": {},
    "Cohere": {},
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_other_networks_keep_their_own_forward(kind):
    model = random_model(kind, **NOT_PLAIN[kind])
    assert decodable_structure(model) is None
    check_against_the_literal_loop(model, Sampling(max_tokens=6), group_size=2)


def test_rotations_that_change_with_the_length_are_not_plain():
    changing = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
    assert decodable_structure(random_model("Llama", rope_parameters=changing)) is None


@pytest.mark.parametrize("where", ["mlp", "self_attn", "input_layernorm", "post_attention_layernorm"])
def test_a_network_that_hides_other_arithmetic_behind_the_usual_names_is_found_out(where, monkeypatch):
    model = tiny_model()
    kind = type(getattr(model.network.model.layers[1], where))
    stock = kind.forward

    def doubled(self, *arguments, **keywords):
        result = stock(self, *arguments, **keywords)
        return (1.5 * result[0], *result[1:]) if isinstance(result, tuple) else 1.5 * result

    assert decodable_structure(model) is not None
    monkeypatch.setattr(kind, "forward", doubled)
    assert decodable_structure(model) is None


def test_other_kinds_of_layers_and_numbers_are_left_alone():
    class Adapted(torch.nn.Linear):
        """What a library of adapters puts in a layer's place."""

    adapted = tiny_model()
    adapted.network.model.layers[0].self_attn.q_proj = Adapted(32, 32, bias=False)
    assert decodable_structure(adapted) is None
    half = tiny_model()
    half.network.to(torch.bfloat16)
    assert decodable_structure(half) is None


def test_bfloat16_arithmetic_uses_the_stock_step():
    model = tiny_model()
    engine = TransformersEngine(model, compute_dtype=torch.bfloat16)
    (group,) = engine.generate([[5, 6]], group_size=2, sampling=Sampling(max_tokens=4), seeds=[1])
    exact = TransformersEngine(model).generate([[5, 6]], group_size=2, sampling=Sampling(max_tokens=4), seeds=[1])[0]
    assert [completion.logprobs for completion in group] != [completion.logprobs for completion in exact]


def test_rows_keep_their_own_past_whoever_leaves():
    """Rows leave in many orders; what is left must go on as the stock forward says."""
    model = plain_model("Qwen3")
    decoder = PlainDecoder(decodable_structure(model), model.vocabulary_size)
    samples = [3, 1, 2]
    texts = [list(prompt) for prompt, count in zip(PROMPTS, samples, strict=True) for _ in range(count)]
    generator = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        state = PlainState(lambda: decoder, 12, Blocks())
        logits = state.prefill(PROMPTS, samples)
        for leaving in ([], [1], [], [0, 4], [], [2], [0], []):
            for row, text in zip(logits, texts, strict=True):
                expected = model.network(torch.tensor([text])).logits[0, -1, : model.vocabulary_size]
                assert row == pytest.approx(expected, abs=1e-4)
            kept = torch.tensor([row for row in range(len(texts)) if row not in leaving])
            if leaving:
                order = state.keep(kept)
                assert sorted(order.tolist()) == kept.tolist()
                texts = [texts[row] for row in order]
            tokens = torch.randint(model.vocabulary_size, (len(texts),), generator=generator)
            texts = [[*text, token] for text, token in zip(texts, tokens.tolist(), strict=True)]
            logits = state.step(tokens)
    assert len(texts) == 1


def test_memory_of_the_last_batch_is_used_again_and_leaves_no_trace():
    model = plain_model("Qwen3")
    engine = TransformersEngine(model)
    sampling = Sampling(max_tokens=10)
    first = engine.generate(PROMPTS, group_size=4, sampling=sampling, seeds=SEEDS)
    engine.generate(PROMPTS[:1], group_size=2, sampling=Sampling(max_tokens=30), seeds=[9])
    assert engine.generate(PROMPTS, group_size=4, sampling=sampling, seeds=SEEDS) == first
    blocks = Blocks()
    (large,) = blocks.take(1, (4, 5))
    (small,) = blocks.take(1, (2, 3))
    assert small.data_ptr() == large.data_ptr()
    assert blocks.take(1, (5, 5))[0].shape == (5, 5)
