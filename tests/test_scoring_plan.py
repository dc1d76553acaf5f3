"""The micro-batch plan: everything once, within budget, groups together, and a function of lengths alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmc.errors import UsageError
from gmc.scoring.plan import make_plan

pytestmark = pytest.mark.unit


def groups(group_size):
    lengths = st.lists(st.integers(0, 50), min_size=group_size, max_size=group_size)
    return st.lists(st.tuples(st.integers(1, 40), lengths), min_size=1, max_size=6)


batches = st.integers(1, 5).flatmap(groups)


def tokens_of(piece, prompts, responses):
    return prompts[piece.group] + sum(responses[piece.group][sample] - 1 for sample in piece.samples)


@settings(deadline=None)
@given(batches, st.integers(1, 400), st.booleans())
def test_every_response_that_is_not_empty_appears_once_and_in_order(batch, budget, share):
    prompts, responses = zip(*batch, strict=True)
    plan = make_plan(prompts, responses, budget, share_prompts=share)
    rows = [(piece.group, sample) for micro_batch in plan for piece in micro_batch.pieces for sample in piece.samples]
    assert rows == [(group, sample) for group, row in enumerate(responses) for sample, length in enumerate(row) if length]


@settings(deadline=None)
@given(batches, st.integers(1, 400), st.booleans())
def test_micro_batches_keep_to_the_budget(batch, budget, share):
    prompts, responses = zip(*batch, strict=True)
    for micro_batch in make_plan(prompts, responses, budget, share_prompts=share):
        assert micro_batch.tokens == sum(tokens_of(piece, prompts, responses) for piece in micro_batch.pieces)
        alone = len(micro_batch.pieces) == 1 and len(micro_batch.pieces[0].samples) == 1
        assert micro_batch.tokens <= budget or alone
        assert share or all(len(piece.samples) == 1 for piece in micro_batch.pieces)


@settings(deadline=None)
@given(batches, st.integers(1, 400))
def test_a_group_that_fits_is_not_split(batch, budget):
    prompts, responses = zip(*batch, strict=True)
    pieces = [piece for micro_batch in make_plan(prompts, responses, budget) for piece in micro_batch.pieces]
    for group, lengths in enumerate(responses):
        whole = prompts[group] + sum(length - 1 for length in lengths if length)
        if whole <= budget and any(lengths):
            assert sum(piece.group == group for piece in pieces) == 1


def test_an_example():
    plan = make_plan([10, 10, 10], [[4, 0, 3], [6, 6, 6], [30, 30, 2]], 40)
    assert [[(piece.group, piece.samples) for piece in micro_batch.pieces] for micro_batch in plan] == [
        [(0, (0, 2)), (1, (0, 1, 2))],
        [(2, (0,))],
        [(2, (1, 2))],
    ]
    assert [micro_batch.tokens for micro_batch in plan] == [40, 39, 40]


def test_a_budget_below_one_token_is_refused():
    with pytest.raises(UsageError, match="token_budget = 0"):
        make_plan([1], [[1]], 0)
