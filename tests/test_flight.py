"""Responses that are left and gone on with: the same as in one go, and under other weights what those say."""

import pytest
import torch
from test_sampling import PROMPTS, reference_logp
from tiny_models import tiny_model

from gmc.engines.base import Partial, Sampling
from gmc.engines.decoding import AnyState, FullAttentionState
from gmc.engines.decoding_choice import Decoding
from gmc.engines.flight import Flight, flights
from gmc.engines.stopping import StopStrings
from gmc.engines.transformers import TransformersEngine
from gmc.errors import UsageError
from gmc.models import load_model

pytestmark = pytest.mark.unit

SAMPLING = Sampling(max_tokens=24)


@pytest.fixture
def model():
    return tiny_model()


DECODINGS = {
    "chosen": lambda model: TransformersEngine(model)._decoding,
    "full": lambda model: Decoding("full", lambda tokens: FullAttentionState(model, tokens)),
    "any": lambda model: Decoding("any", lambda tokens: AnyState(model)),
}


def partials(samples=3):
    return [Partial(prompt, seed, sample) for seed, prompt in enumerate(PROMPTS) for sample in range(samples)]


def said(responses):
    return [(one.token_ids, one.finish_reason) for one in responses]


def flight(model, decoding, responses, limits=None, stop=None):
    limits = limits or [SAMPLING.max_tokens] * len(responses)
    return Flight(model, DECODINGS[decoding](model), responses, limits, SAMPLING, stop, None)


@pytest.mark.parametrize("decoding", DECODINGS)
def test_what_is_extended_in_pieces_is_what_is_generated_at_once(model, decoding):
    engine = TransformersEngine(model)
    engine._decoding = DECODINGS[decoding](model)
    whole = [
        (one.token_ids, one.finish_reason)
        for group in engine.generate(PROMPTS, group_size=3, sampling=SAMPLING, seeds=range(3))
        for one in group
    ]
    responses, finished = partials(), []
    for step in range(1, 30):
        limits = [min(24, step * (1 + place % 3)) for place in range(len(responses))]
        engine.extend(responses, limits, sampling=SAMPLING, progress=finished.append)
        assert all(len(one.token_ids) == limit or one.finish_reason for one, limit in zip(responses, limits, strict=True))
        assert all(len(one.token_ids) <= limit for one, limit in zip(responses, limits, strict=True))
    assert said(responses) == whole
    assert {reason for _, reason in whole} == {"stop", "length"}  # else one way to end was not seen
    assert sum(finished) == len(responses)
    for one in responses:
        expected = reference_logp(model, one.prompt, one.token_ids, 1.0)
        assert torch.tensor(one.logprobs, dtype=torch.float64) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("keep_cache", [True, False])
def test_a_pause_changes_nothing_while_the_weights_stay(model, decoding, keep_cache):
    whole, paused = partials(), partials()
    assert flight(model, decoding, whole).run()
    going = flight(model, decoding, paused)
    pauses = 0
    while not going.run(lambda: True):
        pauses += 1
        going.renew(keep_cache=keep_cache)
    assert said(paused) == said(whole)
    assert pauses == max(len(one.token_ids) for one in whole) - 1


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("keep_cache", [True, False])
def test_other_weights_sample_what_follows_and_a_kept_cache_is_of_the_old_ones(model, decoding, keep_cache):
    responses = partials()
    going = flight(model, decoding, responses)
    asked = []
    assert not going.run(lambda: asked.append(None) or len(asked) == 6)
    before = [list(one.token_ids) for one in responses]
    old = [reference_logp(model, one.prompt, one.token_ids, 1.0) for one in responses]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter += 0.3 * parameter.std() * torch.randn(parameter.shape, generator=generator)
    going.renew(keep_cache=keep_cache)
    assert going.run()
    worst = 0.0
    for one, first, logp in zip(responses, before, old, strict=True):
        assert one.token_ids[: len(first)] == first
        assert torch.tensor(one.logprobs[: len(first)], dtype=torch.float64) == pytest.approx(logp, abs=1e-4)
        now = reference_logp(model, one.prompt, one.token_ids, 1.0)[len(first) :]
        difference = (torch.tensor(one.logprobs[len(first) :], dtype=torch.float64) - now).abs()
        worst = max([worst, *difference.tolist()])
    assert (worst > 1e-2) if keep_cache else (worst < 1e-4)


def test_the_fused_steps_go_on_with_the_new_weights_over_the_old_cache():
    """As the network itself does, whose weights cannot be other than the new ones."""
    results = []
    for decoding in ("chosen", "full"):
        model = load_model("embedded")
        assert DECODINGS[decoding](model).name == ("fused steps" if decoding == "chosen" else "full")
        responses = partials()
        going, asked = flight(model, decoding, responses), []
        assert not going.run(lambda asked=asked: asked.append(None) or len(asked) == 6)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.network.parameters():
                parameter += 0.1 * parameter.std() * torch.randn(parameter.shape, generator=generator)
        going.renew(keep_cache=True)
        assert going.run()
        results.append(responses)
    assert said(results[0]) == said(results[1])
    for fused, full in zip(*results, strict=True):
        assert fused.logprobs == pytest.approx(full.logprobs, abs=1e-4)


def test_a_stop_string_may_begin_before_the_pause(model):
    first = partials(1)
    engine = TransformersEngine(model)
    engine.extend(first, [24] * 3, sampling=SAMPLING)
    texts = [model.tokenizer.convert_ids_to_tokens(one.token_ids) for one in first]
    place = max(range(3), key=lambda index: len(texts[index]))
    middle = model.tokenizer.decode(first[place].token_ids[9:11])
    stop = StopStrings(model.tokenizer, [middle], model.vocabulary_size)
    for pause in (5, 10):
        again = partials(1)
        flight(model, "full", again, [pause] * 3, stop).run()
        flight(model, "full", again, None, stop).run()
        assert len(again[place].token_ids) <= 11
        assert again[place].finish_reason == "stop"


def test_rows_are_split_by_memory_and_by_length():
    assert list(flights([5, 5, 5, 5], 10, 100, equal_lengths=False)) == [[0, 1], [2, 3]]
    assert list(flights([5, 9, 5], 10, 1, equal_lengths=False)) == [[0], [1], [2]]
    assert list(flights([5, 5, 9, 9, 5], 1, 1000, equal_lengths=True)) == [[0, 1], [2, 3], [4]]
    assert list(flights([], 1, 1, equal_lengths=False)) == []


def test_one_flight_that_does_not_fit_is_refused(model):
    engine = TransformersEngine(model, cache_bytes=2 * 31 * 2 * 2 * 2 * 8 * 4)
    with pytest.raises(
        UsageError, match=r"live\.in_flight: 9 responses .* do not fit into one decoding batch \(5 are needed\)"
    ):
        engine.flight(partials(), sampling=SAMPLING)
