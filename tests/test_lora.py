"""Adapters: trained in place of the weights, published alone, resumed to the same bits; also over quantized weights."""

import json
import zlib
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file
from training_runs import metrics_of, small_settings, train_run
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import gmc
from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import DataError, UsageError
from gmc.estimators.registry import list_estimators
from gmc.grading import Grader
from gmc.grading.grade import Verdict
from gmc.loading.adapter import attach_adapter, merged_weights
from gmc.models import load_model, load_tokenizer, policy_hash, weights_hash, with_adapter
from gmc.parameters.whole import Whole
from gmc.scoring.scorer import Scorer
from gmc.training import run
from gmc.training.loop import Observer

# Found and not imported: peft takes seconds, and whoever collects tests may want others.
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed: pip install 'gmc-rl[lora]'")

SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
}
PROMPT, RESPONSES = [5, 6, 7], [[8, 9, 10, 11], [12, 13]]


def adapted(rank=4, alpha=8.0):
    """The embedded model with an adapter that has learned something random."""
    model = with_adapter(load_model("embedded"), rank=rank, alpha=alpha)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.unit
def test_a_new_adapter_is_the_model_itself_and_leaves_its_hash():
    plain, new = load_model("embedded"), with_adapter(load_model("embedded"), rank=4, alpha=8.0)
    assert policy_hash(new) == weights_hash(plain.weights()) == policy_hash(plain)
    assert policy_hash(adapted()) != policy_hash(plain)
    expected = Scorer(plain).score([PROMPT], [RESPONSES]).logp_BT
    assert Scorer(new).score([PROMPT], [RESPONSES]).logp_BT == pytest.approx(expected, abs=1e-5)
    names = Whole(new).own
    assert names
    assert all("lora_" in name for name in names)


@pytest.mark.unit
def test_scores_samples_and_gradients_are_those_of_the_merged_weights():
    model, plain = adapted(rank=4, alpha=8.0), load_model("embedded")
    factors = {name: tensor.detach().double() for name, tensor in Whole(model).own.items()}
    with torch.no_grad():
        for name, parameter in plain.network.named_parameters():
            first = name.removesuffix("weight") + "lora_A.default.weight"
            if first in factors:
                parameter += (8.0 / 4 * factors[first.replace("lora_A", "lora_B")] @ factors[first]).float()
    logits_TV = plain.network(torch.tensor([PROMPT + RESPONSES[0]])).logits[0].detach().double()
    wanted = [float(logits_TV[2 + step].log_softmax(-1)[token]) for step, token in enumerate(RESPONSES[0])]
    assert Scorer(model).score([PROMPT], [RESPONSES]).logp_BT[0].tolist() == pytest.approx(wanted, abs=1e-4)
    greedy = Sampling(temperature=0.0, max_tokens=12)
    asked = {"group_size": 1, "sampling": greedy, "seeds": [0, 1]}
    first, second = (TransformersEngine(each).generate([PROMPT, [20, 30]], **asked) for each in (model, plain))
    assert [group[0].token_ids for group in first] == [group[0].token_ids for group in second]


@pytest.mark.unit
def test_merged_weights_are_those_of_plain_arithmetic():
    model, plain = adapted(rank=4, alpha=8.0), load_model("embedded").weights()
    own = {name: tensor.double() for name, tensor in model.weights().items()}
    merged = merged_weights(model.network, model.weights())
    assert merged.keys() == plain.keys()
    changed = 0
    for name, tensor in merged.items():
        first, second = (own.get(name.removesuffix("weight") + f"lora_{factor}.default.weight") for factor in "AB")
        wanted = plain[name].double() + (8.0 / 4 * second @ first if first is not None else 0.0)
        assert (tensor.double() - wanted).abs().max() < 1e-6
        changed += first is not None
    assert changed == 7 * model.network.config.num_hidden_layers


@pytest.mark.unit
def test_transposed_layers_are_merged_too():
    network = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=32, n_layer=1, n_head=2, n_positions=64)).eval()
    ids = torch.tensor([[3, 4, 5, 6]])
    attach_adapter(network, rank=2, alpha=8.0, base="gpt2")
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.3)
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    beside = network(ids).logits
    plain = GPT2LMHeadModel(network.config).eval()
    plain.load_state_dict(merged_weights(network, weights), strict=False)
    assert torch.allclose(plain(ids).logits, beside, atol=1e-5)


@pytest.mark.unit
def test_an_adapter_over_an_adapter_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is an adapter already"):
        with_adapter(adapted(), rank=2, alpha=1.0)
    adapted().adapter.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(tmp_path)}))
    with pytest.raises(DataError, match="adapter over an adapter"):
        load_model(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match="does not name the model"):
        load_model(tmp_path)


LORA = ("model.lora.rank=4", "optimizer.schedule=constant", "train.checkpoint_every=2", "train.publish_every=2")


def adapter_of(path):
    return load_file(sorted((path / "policies").glob("v*"))[-1] / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("lora") / "run"
    train_run(path, small_settings(*LORA, "delay=2", "train.updates=4"))
    return path


@pytest.mark.train
def test_a_policy_is_an_adapter_that_transformers_loads(trained, tmp_path):
    assert all(metrics["ratio/log_rho_max"] == 0.0 for metrics in metrics_of(trained)[:1]), "scored as it was sampled"
    policy = sorted((trained / "policies").glob("v*"))[-1]
    assert not list(policy.glob("model*.safetensors"))
    model, base = load_model(policy), load_model("embedded").weights()
    for name, tensor in model.weights().items():
        if "lora_" not in name:
            assert torch.equal(tensor, base[name.replace(".base_layer.", ".")]), "the model under an adapter stays as it is"
    assert any(bool(tensor.any()) for name, tensor in model.weights().items() if "lora_B" in name)
    assert json.loads((policy / "gmc.json").read_text())["weights_hash"] == policy_hash(model)
    ids = torch.tensor([PROMPT])
    stock = AutoModelForCausalLM.from_pretrained(policy).eval()
    assert stock(ids).logits.tolist() == model.network(ids).logits.tolist()
    frame = gmc.evaluate(trained, n=1, limit=4, max_tokens=16).to_frame()
    assert len(frame)
    gmc.train(tmp_path / "further", model=str(policy), updates=1, delay=0, prompts=2, group_size=2, max_tokens=8)


@pytest.mark.train
def test_a_resumed_adapter_ends_with_the_same_bits(trained, tmp_path):
    cut = tmp_path / "cut"
    settings, done = small_settings(*LORA, "delay=2", "train.updates=4"), []

    class Counting(Observer):
        def updated(self, update, metrics):
            done.append(update)

    stopped = run.train_run(cut, settings, observer=Counting(), stopping=lambda: len(done) == 3)
    assert not stopped.finished
    train_run(cut, small_settings(*LORA, "delay=2", "train.updates=4"), resume=True)
    first, second = adapter_of(trained), adapter_of(cut)
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.mark.train
def test_rollouts_of_the_plain_model_are_those_of_a_new_adapter(tmp_path):
    small = {"prompts": 2, "group_size": 2, "max_tokens": 8}
    gmc.rollout(tmp_path / "run", batches=1, **small)
    result = gmc.train(tmp_path / "run", updates=1, delay=0, settings={"model.lora.rank": 2})
    assert result.finished


def graded_by_checksum(self, pairs, **flags):
    """Rewards that differ within a group, whatever the model knows."""
    verdicts = {True: Verdict(True, "correct", None, "exact"), False: Verdict(False, "incorrect", None, "exact")}
    return [verdicts[zlib.crc32(text.encode()) % 2 == 0] for _, text in pairs]


@pytest.mark.train
@pytest.mark.parametrize("rule", [found.name for found in list_estimators()])
def test_every_rule_trains_the_adapter_and_leaves_the_model(rule, tmp_path, monkeypatch):
    monkeypatch.setattr(Grader, "grade_many", graded_by_checksum)
    small = ("model.lora.rank=2", "rollout.prompts=2", "rollout.max_tokens=16", "rollout.temperature=2.0", "train.updates=2")
    train_run(tmp_path, small_settings(*small, "delay=1", f"estimator.name={rule}"))
    metrics = metrics_of(tmp_path)
    assert [update["delay/mean"] for update in metrics] == [0.0, 1.0]
    assert all(0 < update["optimizer/gradient_norm"] < float("inf") for update in metrics)
    [policy] = (tmp_path / "policies").glob("v000002")
    model, base = load_model(policy), load_model("embedded").weights()
    moved = {name for name, tensor in model.weights().items() if "lora_B" in name and bool(tensor.any())}
    assert moved == {name for name in model.weights() if "lora_B" in name}
    kept = {name.replace(".base_layer.", "."): tensor for name, tensor in model.weights().items() if "lora_" not in name}
    assert all(torch.equal(tensor, base[name]) for name, tensor in kept.items())


@pytest.mark.train
@pytest.mark.parametrize("bits", ["load_in_4bit", "load_in_8bit"])
def test_quantized_weights_are_trained_by_an_adapter_alone(bits, tmp_path):
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    plain = LlamaForCausalLM(LlamaConfig(**SIZES))  # rows of 64, as the kernels for a CPU want
    for folder in (tmp_path / "plain", tmp_path / "quantized"):
        load_tokenizer("embedded").save_pretrained(folder)
    plain.save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(**{bits: True})
    AutoModelForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config).save_pretrained(tmp_path / "quantized")
    small = {"prompts": 2, "group_size": 2, "max_tokens": 8, "model": str(tmp_path / "quantized"), "updates": 1, "delay": 0}
    with pytest.raises(UsageError, match=r"quantized \(bitsandbytes\).*model\.lora\.rank=16"):
        gmc.train(tmp_path / "refused", **small)
    assert gmc.train(tmp_path / "run", **small, settings={"model.lora.rank": 2}).finished
    policy = sorted((tmp_path / "run" / "policies").glob("v*"))[-1]
    model = load_model(policy)
    assert model.quantized == "bitsandbytes"
    whole = LlamaForCausalLM(plain.config).eval()
    whole.load_state_dict(merged_weights(model.network, model.weights()), strict=False)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    for _ in range(2):  # a first pass packs the weights anew for the CPU
        assert (whole(ids).logits - model.network(ids).logits).abs().max() < 0.05
        whole.load_state_dict(merged_weights(model.network, model.weights()), strict=False)
