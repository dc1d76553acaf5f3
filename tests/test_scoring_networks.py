"""Other architectures: packed scoring where it is exact, the network's own forward where it is not, never a wrong number."""

import pytest
import torch
from examples import thinned
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from gmc.models import LanguageModel
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9], [10, 11, 12]]
RESPONSES = [[[13, 14, 15], [16]], [[], [17, 18, 19, 20, 21, 22, 23]]]

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}

PACKED = {
    "llama": {},
    "qwen2": {},
    "olmo2": {},
    "phi3": {},
    "mistral": {"sliding_window": None},
    "gpt2": {"n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48},
    "gpt_neox": {"num_key_value_heads": 4},
}
WINDOWS = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
STOCK = {
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma2, caps alone": {"query_pre_attn_scalar": 8, "layer_types": ["full_attention"] * 2, "attn_logit_softcapping": 2.0},
    "gemma3_text, windows of 4": {"query_pre_attn_scalar": 8, "sliding_window": 4, "layer_types": WINDOWS},
    "gpt_oss, windows of 4": {**EXPERTS, "sliding_window": 4, "layer_types": WINDOWS},
    "gpt_oss, sinks alone": {**EXPERTS, "layer_types": ["full_attention"] * 2},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
    "mistral": {"sliding_window": 4},
    "mamba": {"state_size": 4},
    "bloom": {"n_layer": 2, "n_head": 4},
}


NETWORKS = [
    pytest.param(checkpointing, kind, changes, kind in PACKED and PACKED[kind] is changes, id=f"{kind}-{checkpointing}")
    for checkpointing in (False, True)
    for kind, changes in (*PACKED.items(), *STOCK.items())
]
"""An odd number of them: of every second each comes once, with recomputation or without."""


def network_of(kind, changes):
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind.partition(",")[0]](**{**SIZES, **changes})
    network = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    tokenizer = tiny_model().tokenizer
    return LanguageModel(network, tokenizer, kind, frozenset({1}), len(tokenizer))


def literal(model):
    rows = []
    for prompt, group in zip(PROMPTS, RESPONSES, strict=True):
        for response in group:
            logits = model.network(torch.tensor([prompt + response]), use_cache=False).logits[0, :, : model.vocabulary_size]
            logp = (logits / 0.8).log_softmax(-1)
            chosen = [logp[len(prompt) - 1 + step, token] for step, token in enumerate(response)]
            rows.append(torch.stack(chosen + [logp.new_zeros(())] * (7 - len(response))))
    return torch.stack(rows)


@pytest.mark.parametrize(("checkpointing", "kind", "changes", "packed"), thinned(NETWORKS, 2))
def test_every_network_is_scored_as_its_own_forward_would(checkpointing, kind, changes, packed, caplog):
    model = network_of(kind, changes)
    expected_BT = literal(model)
    grad_BT = torch.randn(expected_BT.shape, generator=torch.Generator().manual_seed(0))
    model.network.zero_grad()
    expected_BT.backward(grad_BT)
    expected = {name: parameter.grad.clone() for name, parameter in model.network.named_parameters()}

    scorer = Scorer(model, temperature=0.8, token_budget=20, checkpointing=checkpointing)
    assert scorer.shares_prompts == packed
    said = [record.getMessage() for record in caplog.records]
    assert bool(said) != packed, "a fallback is announced, and only a fallback"
    assert any("scored by the model's own forward, without sharing prompts: " in line for line in said) != packed
    current = scorer.forward(PROMPTS, RESPONSES)
    behavior = scorer.score(PROMPTS, RESPONSES, entropies=True)
    assert torch.equal(behavior.logp_BT, current.logp_BT)
    assert current.logp_BT == pytest.approx(expected_BT.detach(), abs=1e-4)
    model.network.zero_grad()
    current.backward(grad_BT)
    largest = max(gradient.norm() for gradient in expected.values())
    for name, parameter in model.network.named_parameters():
        assert (parameter.grad - expected[name]).norm() <= 1e-4 * max(expected[name].norm(), largest / 10), name


def test_a_network_whose_forward_changes_after_the_probe_would_be_noticed_at_the_next_scorer():
    model = tiny_model()
    assert Scorer(model).shares_prompts
    forward = type(model.network).forward

    def capped(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits = torch.tanh(output.logits)
        return output

    model.network.__class__ = type("Capped", (type(model.network),), {"forward": capped})
    assert not Scorer(model).shares_prompts


@pytest.mark.parametrize("kind", ["qwen3", "gemma2"])
def test_score_norms_are_those_of_autograd_row_by_row(kind):
    model = tiny_model() if kind == "qwen3" else network_of(kind, STOCK[kind])
    scorer = Scorer(model, temperature=0.8)
    rows_BT = literal(model)
    parameters = list(model.network.parameters())
    expected = []
    for row_T, response in zip(rows_BT, [response for group in RESPONSES for response in group], strict=True):
        if response:
            gradients = torch.autograd.grad(row_T.sum(), parameters, retain_graph=True, allow_unused=True)
            expected.append(sum(gradient.double().square().sum() for gradient in gradients if gradient is not None).log())
        else:
            expected.append(torch.tensor(-torch.inf, dtype=torch.float64))
    model.network.zero_grad()
    assert scorer.log_score_norms(PROMPTS, RESPONSES) == pytest.approx(torch.stack(expected), abs=1e-4)
    assert all(parameter.grad is None for parameter in model.network.parameters())
