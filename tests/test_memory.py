"""What training takes of a GPU: counts against real tensors, choices by size, and refusals with their arithmetic."""

import json
import re

import pytest
import torch
import varlen_double
from transformers import Qwen3Config
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.errors import DataError, UsageError
from gmc.resolving import memory, resolve
from gmc.resolving.memory import GIB, check_engine_share, fitted_plan
from gmc.resolving.resolve import resolve_settings
from gmc.scoring import varlen
from gmc.scoring.attention import varlen_assumed
from gmc.scoring.memory import fake_network, network_size, saved_bytes
from gmc.scoring.packing import pack
from gmc.scoring.passes import PackedPass
from gmc.scoring.plan import make_plan
from gmc.training import run

pytestmark = pytest.mark.unit

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def config_of(layers=3, **changes):
    return Qwen3Config(**{"vocab_size": 96, "num_hidden_layers": layers, "tie_word_embeddings": True, **SMALL, **changes})


def counted_on_real_tensors(dtype, checkpointing, prompt_lengths, lengths_PG, monkeypatch):
    """Bytes that autograd saves when the pass really runs, with the double of the kernel."""
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(varlen, "operators", lambda: (varlen_double.forward, varlen_double.backward))
    network = AutoModelForCausalLM.from_config(config_of(), dtype=torch.float32).train(False)
    own = {parameter.untyped_storage().data_ptr() for parameter in (*network.parameters(), *network.buffers())}
    seen, kept = {}, []

    def save(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.append(tensor)
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    (micro_batch,) = make_plan(prompt_lengths, lengths_PG, 10**6)
    prompts, responses = [[1] * length for length in prompt_lengths], [[[2] * n for n in row] for row in lengths_PG]
    packed = pack(micro_batch, prompts, responses, torch.device("cpu"))
    scoring = PackedPass(network, 96, 1.0, dtype, checkpointing)
    with varlen_assumed(), scoring.active(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        scoring.run_packed(packed, entropies=False)
    return sum(seen.values()), micro_batch.tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, None])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_line_through_two_fake_counts_bounds_what_real_tensors_take_closely(dtype, checkpointing, monkeypatch):
    line = saved_bytes(fake_network(config_of()), dtype, checkpointing=checkpointing)
    for shape in (([300], [[500]]), ([40, 9, 70], [[100, 3, 51], [7, 7, 7], [1, 90, 200]])):
        found, tokens = counted_on_real_tensors(dtype, checkpointing, *shape, monkeypatch)
        assert found <= line.of(tokens) <= 1.08 * found


def test_recomputing_keeps_little_more_than_each_layers_input():
    config = config_of(layers=12)
    saved = saved_bytes(fake_network(config), torch.bfloat16, checkpointing=True)
    residuals = 12 * 32 * 4
    assert residuals < saved.per_token < residuals + 6 * 32 * 4


def test_size_of_a_known_network():
    heads = 4 * 16
    layer = 32 * heads * 2 + 32 * 32 * 2 + 3 * 32 * 64 + 2 * 32 + 2 * 16
    assert network_size(fake_network(config_of())) == memory.NetworkSize(96 * 32 + 3 * layer + 32, 3, 96 * 32 + 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model's config without weights, 0.6B parameters in few layers."""
    path = tmp_path_factory.mktemp("config") / "model"
    shape = {"vocab_size": 50_000, "hidden_size": 2048, "intermediate_size": 12288, "num_attention_heads": 16, "head_dim": 128}
    config_of(6, **shape).save_pretrained(path)
    return path


def settings_of(folder, *assignments):
    return resolve_settings(assignments=[f"model.source={folder}", "model.device=cuda", *assignments])


def test_parts_by_hand(folder):
    plan = fitted_plan(settings_of(folder, "optimizer.name=adamw8bit", "rollout.engine=vllm"), 80 * GIB)
    words = network_size(fake_network(memory.load_config(str(folder)))).parameters
    assert plan.parts["weights"] == plan.parts["gradients"] == 4 * words
    assert plan.parts["optimizer"] == 2 * words + words * 8 // 256
    assert plan.parts["engine"] == 40 * GIB
    assert plan.sampling == 0
    assert plan.total == sum(plan.parts.values())


def test_an_engine_in_the_network_is_counted_before_the_backward_pass_not_beside_it(folder):
    plan = fitted_plan(settings_of(folder), 80 * GIB)
    assert plan.sampling == min(80 * GIB // 4, 2 * 6 * 2 * 128 * 2 * 64 * 4096)
    passing = plan.parts["activations"] + plan.parts["logits"]
    assert plan.total == sum(plan.parts.values()) - passing + max(passing, plan.sampling)


def test_rules_that_keep_weights_or_gradients_are_counted(folder):
    words = network_size(fake_network(memory.load_config(str(folder)))).parameters
    parts = {name: fitted_plan(settings_of(folder, f"estimator.name={name}"), 80 * GIB).parts for name in ("gmc", "gac")}
    assert "rule" not in parts["gmc"]
    assert parts["gac"]["rule"] == 4 * words


def test_the_largest_plan_that_fits_is_chosen_and_what_was_said_stays(folder):
    chosen = {
        gib: (plan.checkpointing, plan.token_budget, plan.fits)
        for gib in (141, 30, 18, 1)
        for plan in [fitted_plan(settings_of(folder), gib * GIB)]
    }
    assert chosen[141] == (False, 16384, True)
    assert chosen[30][0] is False
    assert chosen[30][1] < 16384
    assert chosen[18][::2] == (True, True)
    assert chosen[1][2] is False
    said = fitted_plan(settings_of(folder, "train.tokens_per_micro_batch=1000"), 18 * GIB)
    assert (said.token_budget, said.micro_batch_tokens) == (1000, 4096)  # one response may be longer than the budget
    assert fitted_plan(settings_of(folder, "train.activation_checkpointing=false"), GIB).checkpointing is False


def test_settings_of_a_gpu_are_those_that_fit_it(folder, monkeypatch):
    monkeypatch.setattr(memory, "gpu_bytes", lambda: 18 * GIB)
    settings = settings_of(folder)
    plan = fitted_plan(settings, 18 * GIB)
    assert settings.train.activation_checkpointing is True
    assert settings.train.tokens_per_micro_batch == plan.token_budget
    assert settings.origins["train.activation_checkpointing"] == "device"
    assert resolve_settings(assignments=["model.device=cpu"]).train.activation_checkpointing is False
    kept = settings_of(folder, "train.activation_checkpointing=false", "train.tokens_per_micro_batch=16384")
    assert (kept.train.activation_checkpointing, kept.train.tokens_per_micro_batch) == (False, 16384)


@pytest.mark.parametrize(("gib", "ranks", "sharding"), [(141, 4, "none"), (10, 4, "full"), (10, 1, "none")])
def test_ranks_hold_parts_where_copies_do_not_fit_the_gpu_that_is_there(folder, monkeypatch, gib, ranks, sharding):
    monkeypatch.setattr(memory, "gpu_bytes", lambda: gib * GIB)
    monkeypatch.setattr(resolve, "coming_ranks", lambda: ranks)
    settings = settings_of(folder)
    assert settings.train.sharding == sharding
    assert settings.origins["train.sharding"] == "device"
    plan = fitted_plan(settings_of(folder), gib * GIB, ranks)
    assert plan.fits == (ranks > 1)
    assert (settings.train.tokens_per_micro_batch, settings.train.activation_checkpointing) == (
        plan.token_budget,
        plan.checkpointing,
    )
    for said in ("none", "full"):
        assert settings_of(folder, f"train.sharding={said}").train.sharding == said


def test_an_engine_that_leaves_too_little_is_refused_with_the_sum(folder):
    settings = settings_of(folder, "rollout.engine=vllm", "rollout.gpu_memory_share=0.9")
    with pytest.raises(UsageError) as refusal:
        check_engine_share(settings, 40 * GIB)
    message = str(refusal.value)
    assert "vllm would take 36.0 GiB of 40.0" in message
    needed = float(re.search(r"training needs ([\d.]+)", message)[1])
    share = float(re.search(r"at most rollout.gpu_memory_share = ([\d.]+)", message)[1])
    assert needed + share * 40 == pytest.approx(40, abs=0.3)
    check_engine_share(settings_of(folder, "rollout.engine=vllm", f"rollout.gpu_memory_share={share - 0.02:.2f}"), 40 * GIB)
    check_engine_share(settings_of(folder, "rollout.gpu_memory_share=0.9"), 40 * GIB)  # no engine with its own copy
    check_engine_share(settings_of(folder, "rollout.engine=vllm-server", "rollout.gpu_memory_share=0.9"), 40 * GIB)  # not here
    check_engine_share(settings, None)


def test_training_asks_for_the_engines_share_before_either_takes_memory(folder, tmp_path, monkeypatch):
    def opened(*_, **__):
        raise AssertionError("model and engine would be built now")

    monkeypatch.setattr(run, "gpu_bytes", lambda: 40 * GIB)
    monkeypatch.setattr(run, "open_session", opened)
    for share, expected in (("0.9", UsageError), ("0.1", AssertionError)):
        settings = settings_of(folder, "rollout.engine=vllm", f"rollout.gpu_memory_share={share}")
        with pytest.raises(expected, match=r"vllm would take 36\.0 GiB of 40\.0|would be built now"):
            run.train_run(tmp_path / share, settings)
    assert not (tmp_path / "0.9").exists()


def test_the_plan_needs_no_weights_and_shows_the_usual_sizes(folder):
    result = CliRunner().invoke(app, ["train", "--plan", "--json", "--model", str(folder), "--run", str(folder / "run")])
    plans = json.loads(result.stdout)
    assert [*plans] == [*memory.GPUS]
    assert plans["141 GB"]["fits"] is True
    assert plans["80 GB"]["capacity"] == 79 * GIB
    assert not (folder / "run").exists()


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no config\.json"):
        memory.load_config(str(tmp_path))
