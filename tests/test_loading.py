"""Models met in the wild: each works, or is refused at load in one line that names the folder, the fact and the cure."""

import contextlib
import importlib.util
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import character_tokenizer, tiny_network
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, BertConfig, BertLMHeadModel, MixtralConfig, Phi3Config

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import DataError, GmcError, UsageError
from gmc.models import LanguageModel, load_model
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.unit

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "model", tiny_network())


def saved(path, network, tokenizer=None):
    network.save_pretrained(path)
    (tokenizer or character_tokenizer()).save_pretrained(path)
    return path


def random_network(config, scale=4.0):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    return network


def edit(path, **changes):
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | changes))


def refusal(folder, error=GmcError):
    with pytest.raises(error) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_ids_with_a_gap_are_sampled_where_they_exist_and_nowhere_else(tmp_path):
    tokenizer = character_tokenizer()
    missing = [46, 47, 48, 49]
    network = tiny_network(vocab_size=56)
    path = saved(tmp_path / "gap", network, tokenizer)
    edit_tokens(path, "<late>", 50)
    edit(path / "generation_config.json", eos_token_id=50)
    edit(path / "config.json", eos_token_id=50)
    model = load_model(path)
    assert (model.vocabulary_size, list(model.absent_ids)) == (51, missing)
    with torch.no_grad():  # make what must not be sampled, and the end, very likely
        model.network.model.embed_tokens.weight[46:51] = model.network.model.embed_tokens.weight[5] * 1.5
    engine = TransformersEngine(model)
    sampling = Sampling(temperature=1.0, max_tokens=30)
    groups = engine.generate([[5, 6], [7]], group_size=16, sampling=sampling, seeds=[0, 1])
    completions = [completion for group in groups for completion in group]
    tokens = {token for completion in completions for token in completion.token_ids}
    assert not tokens & set(missing)
    assert any(completion.token_ids[-1] == 50 and completion.finish_reason == "stop" for completion in completions)
    responses = [[completion.token_ids for completion in group] for group in groups]
    for share in (True, False):
        scores = Scorer(model, share_prompts=share).score([[5, 6], [7]], responses, entropies=True)
        for completion, logp_T, mask_T in zip(completions, scores.logp_BT, scores.mask_BT, strict=True):
            assert logp_T[mask_T].tolist() == pytest.approx(completion.logprobs, abs=1e-4)
        assert bool(torch.isfinite(scores.entropies_BT).all())
    logits_TV = model.network(torch.tensor([[5, 6, *responses[0][0]]])).logits[0].detach().double()
    logits_TV[:, missing] = -torch.inf
    wanted = logits_TV[:, :51].log_softmax(-1)[1, responses[0][0][0]]
    assert float(wanted) == pytest.approx(completions[0].logprobs[0], abs=1e-4)


def edit_tokens(path, text, index):
    """Give a saved tokenizer a token with an id beyond the next."""
    backend = json.loads((path / "tokenizer.json").read_text())
    token = {"id": index, "content": text, "special": True, "normalized": False}
    backend["added_tokens"].append({**token, "single_word": False, "lstrip": False, "rstrip": False})
    backend["model"]["vocab"][text] = index
    (path / "tokenizer.json").write_text(json.dumps(backend))
    edit(path / "tokenizer_config.json", eos_token=text)


def test_a_config_that_asks_for_other_outputs_changes_nothing(tmp_path):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    flags = {"output_router_logits": True, "output_attentions": False, "output_hidden_states": True}
    path = saved(tmp_path / "moe", random_network(MixtralConfig(**SIZES, **experts)))
    plain = Scorer(load_model(path)).score([[5, 6, 7]], [[[8, 9], [10]]])
    edit(path / "config.json", **flags, return_dict=False)
    flagged = Scorer(load_model(path)).score([[5, 6, 7]], [[[8, 9], [10]]])
    assert torch.equal(plain.logp_BT, flagged.logp_BT)


def long_rope(tmp_path, **changes):
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64,
    }
    config = Phi3Config(**SIZES, rope_parameters=rope, original_max_position_embeddings=64)
    path = saved(tmp_path / "long", random_network(config))
    edit(path / "config.json", **changes)
    return path


def test_a_rope_that_switches_is_limited_to_where_a_text_depends_on_itself_alone(tmp_path):
    model = load_model(long_rope(tmp_path))
    assert model.context_tokens == 64
    assert any("64 tokens" in note for note in model.notes)
    prompt, short, long = [5, 6, 7], [8, 9, 10], list(range(5, 40)) + list(range(5, 31))
    assert len(prompt) + len(long) == 64
    together = Scorer(model).score([prompt], [[short, long]]).logp_BT[0, :3]
    assert together.tolist() == pytest.approx(Scorer(model).score([prompt], [[short, short]]).logp_BT[0, :3].tolist(), abs=1e-5)
    with pytest.raises(UsageError, match="context of 64"):
        TransformersEngine(model).generate([prompt], group_size=1, sampling=Sampling(temperature=1.0, max_tokens=62), seeds=[0])


def test_a_rope_that_switches_elsewhere_than_its_config_says_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gmc.loading.checks._switches", lambda config: iter([100]))
    assert "how long the texts beside it are" in refusal(long_rope(tmp_path), DataError)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.layers.1.mlp.up_proj.weight holds values that are no numbers" in refusal(folder, DataError)


def test_a_network_whose_products_overflow_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"] += 3e38
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "not finite" in refusal(folder, DataError)


def test_an_encoder_is_refused_and_a_decoder_of_its_kind_is_not(tmp_path):
    sizes = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    encoder = saved(tmp_path / "encoder", random_network(BertConfig(**sizes)))
    assert "no causal language model" in refusal(encoder, DataError)
    decoder = saved(tmp_path / "decoder", BertLMHeadModel(BertConfig(**sizes, is_decoder=True)))
    assert load_model(decoder).position_limit is None


@pytest.mark.parametrize(
    ("method", "package", "module"),
    [
        ("gptq", "optimum", "optimum"),
        ("awq", "gptqmodel", "gptqmodel"),
        ("compressed-tensors", "compressed-tensors", "compressed_tensors"),
        ("hqq", "HQQ", "hqq"),
        ("quanto", "optimum-quanto", "optimum"),
        ("aqlm", "aqlm", "aqlm"),
        ("torchao", "torchao", "torchao"),
        ("auto-round", "auto-round", "auto_round"),
        ("vptq", "vptq", "vptq"),
    ],
)
def test_a_quantization_whose_package_is_missing_is_one_line_with_its_name(folder, method, package, module):
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    edit(folder / "config.json", quantization_config={"quant_method": method, "bits": 4, "group_size": 32})
    message = refusal(folder, UsageError)
    assert message.startswith(f"{folder}: the model needs what is not here: ")
    assert package in message
    assert message.endswith("; install it, or name another model")


def test_an_adapter_in_a_models_folder_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert "move the adapter's files" in refusal(folder, DataError)


def test_no_end_token_and_a_stray_weight_file_are_said(folder):
    assert load_model(folder).notes == ()
    (folder / "model.safetensors.index.json").write_text('{"metadata": {}, "weight_map": {}}')
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "generation_config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    stray, endless = load_model(folder).notes
    assert "model.safetensors is read" in stray
    assert "no end token" in endless


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"num_hidden_layers": "two"}),
        ("config.json", {"hidden_size": -1}),
        ("config.json", {"rope_parameters": [1]}),
        ("config.json", {"quantization_config": {"quant_method": ["gptq"]}}),
        ("config.json", {"model_type": 7}),
        ("generation_config.json", {"eos_token_id": "one"}),
        ("generation_config.json", {"eos_token_id": {"a": 1}}),
        ("tokenizer_config.json", {"eos_token": 5}),
        ("tokenizer_config.json", {"extra_special_tokens": 3}),
    ],
)
def test_a_wrong_value_in_a_models_files_is_one_line(folder, file, changes):
    edit(folder / file, **changes)
    refusal(folder)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[]", "null", "{", "\x00"])
def test_a_file_that_is_no_table_is_one_line_or_does_not_matter(folder, file, content):
    (folder / file).write_text(content)
    with contextlib.suppress(GmcError):
        load_model(folder)
        return
    refusal(folder)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "experts_implementation"])
def test_a_kernel_from_the_hub_is_foreign_code(folder, key):
    edit(folder / "config.json", **{key: "somebody/flash-attention"})
    assert "trust_remote_code" in refusal(folder, UsageError)


def test_a_token_beyond_the_head_is_refused(folder):
    tokenizer = character_tokenizer()
    tokenizer.add_tokens([AddedToken(f"<{index}>") for index in range(9)])
    tokenizer.save_pretrained(folder)
    assert "output layer only" in refusal(folder, DataError)


def test_a_network_whose_cached_steps_are_not_its_forward_is_refused(folder, monkeypatch):
    model = load_model(folder)
    forward = model.network.forward

    def drifting(*args, past_key_values=None, **options):
        output = forward(*args, past_key_values=past_key_values, **options)
        if past_key_values is not None:
            output.logits = output.logits * 1.01
        return output

    monkeypatch.setattr(model.network, "forward", drifting)
    monkeypatch.setattr("gmc.engines.transformers.decodable_structure", lambda model: None)
    with pytest.raises(UsageError, match="cached steps are not its forward") as caught:
        TransformersEngine(model)
    assert "\n" not in str(caught.value)


def test_a_network_that_does_not_stand_padding_decodes_prompts_of_one_length_together(folder, monkeypatch):
    """As in a recurrent one, what stands at padding reaches the tokens after it."""
    model = load_model(folder)
    forward = model.network.forward

    def leaking(input_ids, attention_mask=None, **options):
        if attention_mask is not None and attention_mask.ndim == 2 and input_ids.shape[1] > 1:
            attention_mask = torch.ones_like(attention_mask)
        return forward(input_ids=input_ids, attention_mask=attention_mask, **options)

    monkeypatch.setattr(model.network, "forward", leaking)
    monkeypatch.setattr(LanguageModel, "full_attention", False)
    engine = TransformersEngine(model)
    assert engine.decoding == "any cache, prompts of one length"
    prompts = [[5, 6, 7], [8, 9], [10, 11, 12, 13], [14, 15]]
    sampling = Sampling(temperature=0.0, max_tokens=6)
    groups = engine.generate(prompts, group_size=2, sampling=sampling, seeds=[0, 1, 2, 3])
    for prompt, group in zip(prompts, groups, strict=True):
        text = list(prompt)
        for token in group[0].token_ids:
            assert int(forward(input_ids=torch.tensor([text])).logits[0, -1, : model.vocabulary_size].argmax()) == token
            text.append(token)
