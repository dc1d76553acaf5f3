"""The in-process engine: what it samples, what it reports, when it stops, and what it may depend on."""

import math

import pytest
import torch
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model
from transformers import MistralConfig, MistralForCausalLM
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from gmc.engines.base import Sampling
from gmc.engines.sampling import next_tokens, truncate, uniform_noise
from gmc.engines.transformers import TransformersEngine
from gmc.errors import DataError, UsageError
from gmc.models import LanguageModel

pytestmark = pytest.mark.unit

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17]]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def engine(model):
    return TransformersEngine(model)


def ids(completions):
    return [[completion.token_ids for completion in group] for group in completions]


def reference_logp(model, prompt, response, temperature):
    """Literal: one row, stock forward, no cache."""
    with torch.no_grad():
        logits = model.network(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1, : model.vocabulary_size]
    logp = (logits.double() / temperature).log_softmax(-1)
    return logp.gather(1, torch.tensor(response)[:, None]).squeeze(1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_reported_logprobs_are_those_of_the_distribution_sampled_from(model, engine, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=30)
    completions = engine.generate(PROMPTS, group_size=5, sampling=sampling, seeds=[1, 2, 3])
    for prompt, group in zip(PROMPTS, completions, strict=True):
        for completion in group:
            expected = reference_logp(model, prompt, completion.token_ids, temperature)
            assert torch.tensor(completion.logprobs, dtype=torch.float64) == pytest.approx(expected, abs=1e-4)
            assert max(completion.logprobs) <= 0


def test_the_same_call_gives_the_same_bytes(engine):
    call = {"group_size": 4, "sampling": Sampling(max_tokens=25), "seeds": [7, 8, 9]}
    assert engine.generate(PROMPTS, **call) == engine.generate(PROMPTS, **call)


def test_a_response_depends_on_its_seed_and_sample_alone(engine):
    sampling = Sampling(max_tokens=25)
    together = ids(engine.generate(PROMPTS, group_size=6, sampling=sampling, seeds=[7, 8, 9]))
    for index, prompt in enumerate(PROMPTS):
        (alone,) = ids(engine.generate([prompt], group_size=2, sampling=sampling, seeds=[7 + index]))
        assert alone == together[index][:2]
    (other,) = ids(engine.generate(PROMPTS[:1], group_size=6, sampling=sampling, seeds=[1]))
    assert other != together[0]


def test_a_shorter_limit_gives_a_prefix(engine):
    long, short = (
        ids(engine.generate(PROMPTS, group_size=4, sampling=Sampling(max_tokens=limit), seeds=[1, 2, 3])) for limit in (20, 6)
    )
    assert short == [[response[:6] for response in group] for group in long]


def test_decoding_in_small_batches_changes_nothing(model, engine):
    sampling = Sampling(max_tokens=20)
    whole = ids(engine.generate(PROMPTS, group_size=5, sampling=sampling, seeds=[1, 2, 3]))
    for rows in (1, 3, 7):
        small = TransformersEngine(model, cache_bytes=rows * 27 * 2 * 2 * 2 * 8 * 4)
        assert ids(small.generate(PROMPTS, group_size=5, sampling=sampling, seeds=[1, 2, 3])) == whole


def test_greedy_decoding_equals_generate(model):
    engine = TransformersEngine(model)
    sampling = Sampling(temperature=0, max_tokens=24)
    rows = model.network.config.vocab_size
    completions = engine.generate(PROMPTS, group_size=2, sampling=sampling, seeds=[0, 0, 0])
    for prompt, group in zip(PROMPTS, completions, strict=True):
        inputs = torch.tensor([prompt])
        expected = model.network.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=[1, 2],
            suppress_tokens=list(range(model.vocabulary_size, rows)),
        )
        assert [completion.token_ids for completion in group] == [expected[0, len(prompt) :].tolist()] * 2
        assert group[0].logprobs == [0.0] * len(group[0].token_ids)


def test_every_end_id_stops_and_stays_in_the_response(model, engine):
    completions = engine.generate([[5, 6]] * 8, group_size=16, sampling=Sampling(max_tokens=60), seeds=range(8))
    endings = set()
    for completion in (item for group in completions for item in group):
        body, last = completion.token_ids[:-1], completion.token_ids[-1]
        assert not {1, 2} & set(body)
        assert completion.finish_reason == ("stop" if last in {1, 2} else "length")
        assert completion.finish_reason == "stop" or len(completion.token_ids) == 60
        endings.add(last)
    assert {1, 2} <= endings, "both end ids must occur for this test to mean anything"


def test_ids_beyond_the_tokenizer_are_never_sampled():
    model = tiny_model(tie_word_embeddings=False)
    with torch.no_grad():
        model.network.lm_head.weight[model.vocabulary_size :] = 50 * model.network.lm_head.weight[:5]
    raw = model.network(torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(-1)
    assert raw[model.vocabulary_size :].sum() > 0.5, "the padding of the head would win if it were allowed to"
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, max_tokens=20)
        completions = TransformersEngine(model).generate(PROMPTS, group_size=8, sampling=sampling, seeds=[1, 2, 3])
        assert max(token for group in ids(completions) for row in group for token in row) < model.vocabulary_size


def test_a_pad_id_that_is_also_an_end_id_is_a_real_token():
    plain = tiny_model()
    model = LanguageModel(plain.network, plain.tokenizer, "tiny", frozenset({0}), plain.vocabulary_size)
    completions = TransformersEngine(model).generate(
        [[0, 5, 0], [0]], group_size=32, sampling=Sampling(max_tokens=40), seeds=[1, 2]
    )
    ended = [item for group in completions for item in group if item.finish_reason == "stop"]
    assert ended
    assert all(item.token_ids[-1] == 0 and 0 not in item.token_ids[:-1] for item in ended)
    for item in ended[:3]:
        assert len(item.logprobs) == len(item.token_ids)


def test_a_stop_string_ends_a_response_and_its_tokens_stay(model, engine):
    free = engine.generate([[5, 6]], group_size=64, sampling=Sampling(max_tokens=30), seeds=[4])[0]
    texts = [model.tokenizer.decode(item.token_ids) for item in free]
    stop = (texts[0][3:5], texts[1][2])
    stopped = engine.generate([[5, 6]], group_size=64, sampling=Sampling(max_tokens=30, stop=stop), seeds=[4])[0]
    shortened = 0
    for before, after in zip(free, stopped, strict=True):
        prefixes = (before.token_ids[: length + 1] for length in range(len(before.token_ids)))
        ended = [prefix for prefix in prefixes if any(part in model.tokenizer.decode(prefix) for part in stop)]
        assert after.token_ids == (ended[0] if ended else before.token_ids)
        assert after.finish_reason == ("stop" if ended else before.finish_reason)
        shortened += len(after.token_ids) < len(before.token_ids)
    assert shortened > 5


def test_progress_counts_every_response_once(engine):
    counts = []
    engine.generate(PROMPTS, group_size=7, sampling=Sampling(max_tokens=30), seeds=[1, 2, 3], progress=counts.append)
    assert sum(counts) == 21
    assert min(counts) >= 1


def test_loaded_weights_are_the_ones_sampled_from(model):
    target, source = tiny_model(seed=3), model
    engine = TransformersEngine(target)
    sampling = Sampling(max_tokens=20)
    before = engine.generate(PROMPTS, group_size=2, sampling=sampling, seeds=[1, 2, 3])
    engine.load_weights(source.weights())
    after = engine.generate(PROMPTS, group_size=2, sampling=sampling, seeds=[1, 2, 3])
    assert after != before
    assert after == TransformersEngine(source).generate(PROMPTS, group_size=2, sampling=sampling, seeds=[1, 2, 3])


def test_weights_that_do_not_fit_are_refused_before_any_is_copied(model):
    engine = TransformersEngine(model)
    weights = {name: torch.zeros_like(value) for name, value in model.weights().items()}
    name = next(iter(weights))
    before = model.network.model.norm.weight.clone()
    with pytest.raises(DataError, match="in one of them only"):
        engine.load_weights({key: value for key, value in weights.items() if key != name})
    with pytest.raises(DataError, match="has shape"):
        engine.load_weights(weights | {name: torch.zeros(2, 2)})
    assert torch.equal(model.network.model.norm.weight, before)


@pytest.mark.parametrize(
    ("prompts", "changes", "message"),
    [
        ([[5] * 510], {}, "prompt 0 has 510 tokens"),
        ([[5], []], {}, "prompt 1 is empty"),
        ([[5]], {"max_tokens": 0}, "max tokens 0"),
    ],
)
def test_impossible_requests_are_one_clear_line(engine, prompts, changes, message):
    with pytest.raises(UsageError, match=message):
        engine.generate(prompts, group_size=1, sampling=Sampling(**{"max_tokens": 8, **changes}), seeds=[0] * len(prompts))


def test_a_network_with_sliding_windows_is_sampled_with_its_own_cache():
    torch.manual_seed(0)
    plain = tiny_model()
    config = MistralConfig(
        vocab_size=plain.vocabulary_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=6, max_position_embeddings=128, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    network = MistralForCausalLM(config).eval()
    for parameter in network.parameters():
        parameter.data.mul_(4)
    model = LanguageModel(network, plain.tokenizer, "sliding", frozenset({1}), plain.vocabulary_size)
    assert not model.full_attention
    completions = TransformersEngine(model).generate(PROMPTS, group_size=4, sampling=Sampling(max_tokens=20), seeds=[1, 2, 3])
    for prompt, group in zip(PROMPTS, completions, strict=True):
        for completion in group:
            expected = reference_logp(model, prompt, completion.token_ids, 1.0)
            assert torch.tensor(completion.logprobs, dtype=torch.float64) == pytest.approx(expected, abs=1e-4)


def test_sampled_frequencies_follow_the_probabilities():
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, -torch.inf]])
    draws = 20_000
    noise = uniform_noise([3], [0], draws)[0]
    tokens, logp = next_tokens(logits.expand(draws, -1), noise, Sampling(), None)
    probabilities = logits[0].double().softmax(-1)
    frequencies = torch.bincount(tokens, minlength=5).double() / draws
    error = (probabilities * (1 - probabilities) / draws).sqrt()
    assert ((frequencies - probabilities).abs() <= 4 * error).all()
    assert logp.double() == pytest.approx(probabilities[tokens].log(), abs=1e-6)


@settings(deadline=None)
@given(noise=st.sampled_from([0.0, 0.5, 1 - 2**-53]), zeros=st.integers(0, 6))
def test_a_token_of_no_probability_is_never_drawn(noise, zeros):
    logits = torch.full((1, 9), -torch.inf)
    logits[0, zeros : zeros + 3] = torch.tensor([1.0, -2.0, 0.5])
    tokens, logp = next_tokens(logits, torch.tensor([noise], dtype=torch.float64), Sampling(), None)
    assert math.isfinite(logp.item())
    assert zeros <= tokens.item() < zeros + 3


@examples(50)
@given(seed=st.integers(0, 1000), top_k=st.integers(1, 12), top_p=st.floats(0.05, 0.95), min_p=st.floats(0.01, 0.9))
def test_truncation_equals_transformers(seed, top_k, top_p, min_p):
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(seed)) * 2
    ours = truncate(logits, Sampling(top_k=top_k, top_p=top_p, min_p=min_p))
    theirs = logits
    for warper in (TopKLogitsWarper(top_k), TopPLogitsWarper(top_p), MinPLogitsWarper(min_p)):
        theirs = warper(None, theirs)
    assert torch.equal(ours.isinf(), theirs.isinf())
    assert torch.equal(ours[~ours.isinf()], theirs[~theirs.isinf()])


def test_a_repetition_penalty_weakens_what_was_seen_before():
    sampling = Sampling(temperature=0, max_tokens=12, repetition_penalty=1e6)
    model = tiny_model()
    completions = TransformersEngine(model).generate(PROMPTS, group_size=1, sampling=sampling, seeds=[0, 0, 0])
    for prompt, group in zip(PROMPTS, completions, strict=True):
        sequence = prompt + group[0].token_ids
        assert len(set(sequence)) == len(sequence), "an overwhelming penalty leaves no repetition"
