"""From rows on disk to the batch that a rule sees: every tensor by value, and what is refused."""

import pytest
import torch
from two_parameters import LENGTHS, REWARDS, SHIFT, START, WIDTH, flat_lengths, groups, logp

from gmc.errors import DataError, UsageError
from gmc.estimators.batch import Need
from gmc.gradients.assemble import assemble, behavior_entropy, behavior_logp, lags

pytestmark = pytest.mark.unit

VERSION = 3  # of every row
BEHAVIOR = [[logp(START, b, t) - SHIFT[b][t] for t in range(length)] for b, length in enumerate(flat_lengths())]


def padded(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([[*row, *[0.0] * (WIDTH - len(row))] for row in rows])


def assembled(needs: frozenset[Need], rows=None, **changes):
    current_BT = torch.full((4, WIDTH), -1.5)
    mask_BT = torch.tensor([[t < length for t in range(WIDTH)] for length in flat_lengths()])
    options = {"logprob_kind": "trainer", "max_response_tokens": 10, "planned_updates": 12, "computed": {}, "update": 8}
    return assemble(rows or groups(), current_BT, mask_BT, needs=needs, **{**options, **changes})


def test_the_batch_holds_what_the_rows_hold():
    rows = groups()
    for row in (row for group in rows for row in group):
        row.trainer_entropies = [0.5 * token for token in row.response_token_ids]
        row.policy_version = VERSION + row.sample
        row.engine_logprobs = [value - 0.125 * (row.sample + 1) for value in row.trainer_logprobs]
    norms, initial_BT = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.full((4, WIDTH), -2.5)
    computed = {Need.SCORE_NORMS: norms, Need.REFERENCE_LOGP: initial_BT}
    batch = assembled(frozenset(Need) - {Need.ANCHOR_LOGP}, rows, computed=computed)
    assert torch.equal(batch.behavior_logp_BT, padded(BEHAVIOR))
    engine = [[value - 0.125 * (b % 2 + 1) for value in row] for b, row in enumerate(BEHAVIOR)]
    assert torch.equal(batch.engine_logp_BT, padded(engine))
    apart = padded([[0.125 * (b % 2 + 1)] * len(row) for b, row in enumerate(BEHAVIOR)])
    torch.testing.assert_close(batch.log_mismatch_BT, apart, rtol=0, atol=1e-6)
    assert torch.equal(batch.reference_logp_BT, initial_BT)
    assert torch.equal(batch.behavior_entropy_BT, padded([[0.5 * t for t in range(length)] for length in flat_lengths()]))
    assert torch.equal(batch.lag_BT, torch.tensor([[5.0] * WIDTH, [4.0] * WIDTH] * 2))
    assert torch.equal(batch.log_score_norm_B, norms)
    assert torch.equal(batch.rewards_PG, torch.tensor(REWARDS))
    assert (batch.planned_updates, batch.max_response_tokens, batch.update) == (12, 10, 8)
    assert batch.mask_BT.sum(-1).tolist() == [length for group in LENGTHS for length in group]


def test_a_token_has_the_lag_of_its_own_version_and_one_that_was_not_sampled_has_none():
    rows = groups()
    lengths = flat_lengths()
    place = max(range(4), key=lambda b: lengths[b])
    row, length = rows[place // 2][place % 2], lengths[place]
    row.token_versions = [VERSION + token for token in range(length)]
    own = [8.0 - VERSION - token for token in range(length)]
    batch = assembled(frozenset({Need.LAGS}), rows)
    for b in range(4):
        assert batch.lag_BT[b, : lengths[b]].tolist() == (own if b == place else [8.0 - VERSION] * lengths[b])
    assert length > 1
    row.response_mask = [token != 1 for token in range(length)]  # what an environment wrote is not seen
    batch = assembled(frozenset({Need.LAGS}), rows)
    assert batch.lag_BT[place, : length - 1].tolist() == [lag for token, lag in enumerate(own) if token != 1]
    row.response_mask, row.token_versions = None, [9] * length
    with pytest.raises(ValueError, match="policy version 9 cannot be used at update 8"):
        assembled(frozenset({Need.LAGS}), rows)


def test_log_probs_are_a_leaf_of_their_own():
    batch = assembled(frozenset())
    assert batch.logp_BT.is_leaf
    assert batch.logp_BT.requires_grad


@pytest.mark.parametrize("need", [Need.BEHAVIOR_LOGP, Need.BEHAVIOR_ENTROPY, Need.LAGS, Need.PLANNED_UPDATES])
def test_nothing_is_brought_but_what_is_needed(need):
    rows = groups()
    for row in (row for group in rows for row in group):
        row.trainer_entropies = [0.0 for _ in row.response_token_ids]
    assert set(assembled(frozenset({need}), rows).brought) == {need}
    assert not assembled(frozenset(), rows).brought


def test_a_column_that_a_shard_lacks_is_named_with_the_cure():
    for kind, other in (("engine", "trainer"), ("trainer", "engine")):
        rows = groups()
        rows[1][1].trainer_logprobs = None
        with pytest.raises(DataError, match=rf"batch 5: its shard has no {kind}_logprobs; train with --logprobs {other}"):
            behavior_logp(rows, kind, WIDTH)
    with pytest.raises(DataError, match=r"has no trainer_entropies; sample again with --set rollout\.entropies=true"):
        behavior_entropy(groups(), WIDTH)


def test_both_kinds_of_log_probs_are_there_or_refused():
    both = frozenset({Need.BEHAVIOR_LOGP, Need.ENGINE_LOGP})
    with pytest.raises(DataError, match=r"batch 5: its shard has no engine_logprobs; sample again with gmc, or choose a rule"):
        assembled(both)
    rows = groups()
    for row in (row for group in rows for row in group):
        row.engine_logprobs = row.trainer_logprobs
    with pytest.raises(UsageError, match=r"weighs the engine's log-probs against the trainer's.*use --logprobs trainer"):
        assembled(both, rows, logprob_kind="engine")


def test_groups_of_two_sizes_are_refused():
    rows = groups()
    rows[0].pop()
    with pytest.raises(UsageError, match=r"update 8: its groups have \[1, 2\] responses"):
        assembled(frozenset(), rows)


def test_a_lag_counts_updates_since_the_rows_own_version():
    assert lags(groups(), 3) == [0] * 4
    assert lags(groups(), 11) == [8] * 4
