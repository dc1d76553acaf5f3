"""sapo, icepop, mis, dis, tis, aipo, gspo and estr against literal float64 references."""

import math
import statistics

import pytest
import torch
from gmc_token_rules.aipo import AIPO
from gmc_token_rules.dis import DIS
from gmc_token_rules.estr import ESTR
from gmc_token_rules.gspo import GSPO
from gmc_token_rules.icepop import IcePop
from gmc_token_rules.mis import MIS
from gmc_token_rules.sapo import SAPO
from gmc_token_rules.tis import TIS
from pydantic import ValidationError

from gmc.estimators.batch import Need
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = [SAPO, IcePop, MIS, DIS, TIS, AIPO, GSPO, ESTR]


def build(rule, **chosen):
    return rule(rule.Settings(**chosen))


def advantage_of(batch, row, divide=True):
    rewards = batch.rewards_PG[row // batch.group_size].tolist()
    centered = rewards[row % batch.group_size] - statistics.fmean(rewards)
    if max(rewards) == min(rewards):
        return 0.0
    return centered / (statistics.stdev(rewards) + 1e-6) if divide else centered


def gradient_of(batch, weight, divide=True):
    """weight(log ratios of the row, t, advantage, row) · advantage at every response token."""
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row in range(batch.logp_BT.shape[0]):
        advantage = advantage_of(batch, row, divide)
        length = int(batch.mask_BT[row].sum())
        logs = (batch.logp_BT.detach()[row, :length] - batch.behavior_logp_BT[row, :length]).tolist()
        for t in range(length):
            gradient[row, t] = weight(logs, t, advantage, row) * advantage
    return gradient


def band(low, high):
    return lambda logs, t, a, row: math.exp(logs[t]) if math.log(low) <= logs[t] <= math.log(high) else 0.0


def sapo(logs, t, a, row):
    tau = 1.0 if a > 0 else 1.05
    if abs(logs[t]) > 20:
        return 0.0
    ratio = math.exp(logs[t])
    exponent = tau * (ratio - 1)
    p = 1 / (1 + math.exp(-exponent)) if exponent < 700 else 1.0
    return 4 * p * (1 - p) * ratio


def gspo(logs, t, a, row):
    mean = math.fsum(logs) / len(logs)
    s = math.exp(mean)
    clipped = (a > 0 and s > 1 + 4e-4) or (a < 0 and s < 1 - 3e-4)
    return 0.0 if clipped or abs(mean) > 20 else s


CASES = [
    (SAPO, {}, sapo, True),
    (IcePop, {}, band(0.5, 5.0), True),
    (IcePop, {"low": 0.9, "high": 1.1}, band(0.9, 1.1), True),
    (MIS, {}, band(0.5, 2.0), True),
    (DIS, {}, lambda logs, t, a, row: math.exp(logs[t]) if 0.7 < math.exp(min(logs[t], 9)) < 6 else 0.0, True),
    (TIS, {}, lambda logs, t, a, row: math.exp(min(logs[t], math.log(2))), True),
    (TIS, {"level": "sequence", "cap": 8}, lambda logs, t, a, row: math.exp(min(math.fsum(logs), math.log(8))), True),
    (AIPO, {}, lambda logs, t, a, row: math.exp(min(logs[t], math.log(5))), False),
    (GSPO, {}, gspo, True),
]


@pytest.mark.parametrize("spread", [1e-4, 0.3, 3.0, 100.0])
@pytest.mark.parametrize(("rule", "chosen", "weight", "divide"), CASES)
def test_gradient_equals_the_reference(rule, chosen, weight, divide, spread):
    batch = random_batch(seed=4, group_size=6, spread=spread)
    gradient = run_stages(build(rule, **chosen), batch).gradient_BT
    torch.testing.assert_close(gradient, gradient_of(batch, weight, divide), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("spread", [0.1, 0.5, 3.0])
def test_estr_equals_the_reference(spread):
    batch = random_batch(seed=4, group_size=6, spread=spread)
    entropies = batch.behavior_entropy_BT.tolist()
    dropped = 0

    def weight(logs, t, a, row):
        nonlocal dropped
        if logs[t] ** 2 / (entropies[row][t] + 0.01) > 0.1:
            dropped += 1
            return 0.0
        clipped = (a > 0 and logs[t] > math.log(1.2)) or (a < 0 and logs[t] < math.log(0.8))
        return 0.0 if clipped else math.exp(logs[t])

    outcome = run_stages(build(ESTR), batch)
    torch.testing.assert_close(outcome.gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)
    assert outcome.metrics["dropped_share"] == pytest.approx(dropped / int(batch.mask_BT.sum()))


TWO_FACTORS = [
    (TIS, {}, lambda log: math.exp(min(log, math.log(2)))),
    (TIS, {"level": "sequence", "cap": 3}, lambda log: math.exp(min(log, math.log(3)))),
    (IcePop, {"low": 0.8, "high": 1.5}, lambda log: math.exp(log) if math.log(0.8) <= log <= math.log(1.5) else 0.0),
    (IcePop, {"low": 0}, lambda log: math.exp(log) if log <= math.log(5) else 0.0),
    (MIS, {"epsilon_low": 0.3, "epsilon_high": 0.4}, lambda log: math.exp(log) if abs(log) <= math.log(2) else 0.0),
]


@pytest.mark.parametrize("spread", [0.05, 0.3, 3.0, 100.0])
@pytest.mark.parametrize(("rule", "chosen", "weigh"), TWO_FACTORS)
def test_two_factors_weigh_the_engines_mismatch_and_clip_the_staleness(rule, chosen, weigh, spread):
    batch = random_batch(seed=8, group_size=6, spread=spread)
    low, high = 1 - chosen.get("epsilon_low", 0.2), 1 + chosen.get("epsilon_high", 0.2)
    mismatch = (batch.behavior_logp_BT - batch.engine_logp_BT).tolist()
    left_out = set()

    def weight(logs, t, a, row):
        shown = mismatch[row][: len(logs)]
        outer = weigh(math.fsum(shown) if chosen.get("level") == "sequence" else shown[t])
        clipped = (a > 0 and logs[t] > math.log(high)) or (a < 0 and logs[t] < math.log(low))
        left_out.add(outer == 0.0)
        if clipped or outer == 0.0 or logs[t] < -20 or logs[t] > 20 - max(math.log(outer), 0.0):
            return 0.0
        return outer * math.exp(logs[t])

    gradient = run_stages(build(rule, factors="two", **chosen), batch).gradient_BT
    torch.testing.assert_close(gradient, gradient_of(batch, weight), rtol=1e-8, atol=1e-11)
    assert rule is TIS or chosen.get("low", 0.5) != 0.8 or left_out == {True, False}


@pytest.mark.parametrize(("rule", "chosen", "weigh"), TWO_FACTORS)
def test_the_contract_holds_with_two_factors_which_need_both_kinds_of_log_probs(rule, chosen, weigh):
    check_estimator(rule, {"factors": "two", **chosen})
    assert build(rule, factors="two").needs == {Need.BEHAVIOR_LOGP, Need.ENGINE_LOGP}
    assert build(rule).needs == {Need.BEHAVIOR_LOGP}


def test_the_product_of_two_factors_stays_below_the_clamp_too():
    """Truncated at 100, an engine's ratio of 50 leaves room for log r up to 20 − log 50 = 16.1 where A < 0."""
    logs = torch.tensor([[16.0], [17.0], [17.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64))
    engine = batch.behavior_logp_BT - torch.tensor([[50.0], [50.0], [0.02]], dtype=torch.float64).log()
    batch = make_batch(logs, batch.rewards_PG, brought={Need.ENGINE_LOGP: engine})
    gradient = run_stages(build(TIS, factors="two", cap=100), batch).gradient_BT[:, 0].tolist()
    assert gradient == [pytest.approx(50 * math.exp(16.0) * advantage_of(batch, 0)), 0.0, 0.0]


def test_staleness_alone_does_not_move_the_weight_of_two_factors():
    logs = torch.tensor([[2.0], [-2.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    one, two = (run_stages(build(MIS, factors=factors), batch).gradient_BT[:, 0] for factors in ("one", "two"))
    assert one.tolist() == [0, 0]  # both tokens lie outside the band of π/μ
    assert two[0] == pytest.approx(math.exp(2.0) * advantage_of(batch, 0))
    assert two[1] == pytest.approx(math.exp(-2.0) * advantage_of(batch, 1))


def test_gspo_with_a_penalty_adds_its_own_gradient():
    batch = random_batch(seed=4, group_size=6, spread=0.3)
    plain, found = (run_stages(build(GSPO, kl=kl), batch).gradient_BT for kl in (0.0, 0.2))
    u = (batch.reference_logp_BT - batch.logp_BT.detach()).tolist()
    for row in range(batch.logp_BT.shape[0]):
        for t in range(int(batch.mask_BT[row].sum())):
            expected = float(plain[row, t]) + 0.2 * (math.exp(u[row][t]) - 1)
            assert float(found[row, t]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    check_estimator(GSPO, {"kl": 0.1})


def test_estr_allows_a_larger_drift_where_the_behavior_policy_was_uncertain():
    logs = torch.tensor([[0.15, 0.15], [0.0, 0.0]], dtype=torch.float64)
    entropy = torch.tensor([[0.01, 2.0], [1.0, 1.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64), brought={Need.BEHAVIOR_ENTROPY: entropy})
    gradient = run_stages(build(ESTR), batch).gradient_BT
    assert gradient[0, 0] == 0
    assert gradient[0, 1] > 0


@pytest.mark.parametrize(("ratio", "positive", "negative"), [(4.0, 0.72, 0.63), (0.5, 0.47, 0.46)])
def test_sapos_published_weights(ratio, positive, negative):
    logs = torch.full((2, 1), math.log(ratio), dtype=torch.float64)
    outcome = run_stages(build(SAPO), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64)))
    weights = (outcome.gradient_BT[:, 0] / outcome.advantages_PG[0]).tolist()
    assert weights == pytest.approx([positive, negative], abs=0.01)


def test_sapos_largest_weight():
    logs = torch.linspace(-3, 3, 4001, dtype=torch.float64)[None, :].repeat(2, 1)
    outcome = run_stages(build(SAPO), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64)))
    largest = (outcome.gradient_BT / outcome.advantages_PG.reshape(-1, 1)).max(dim=1).values.tolist()
    assert largest == pytest.approx([1.575, 1.536], abs=1e-3)


def test_diss_bounds_are_strict_and_icepops_are_not():
    logs = torch.tensor([[math.log(6.0)], [0.0]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert run_stages(build(DIS), make_batch(logs + 1e-12, rewards)).gradient_BT[0, 0] == 0
    assert run_stages(build(DIS), make_batch(logs - 1e-12, rewards)).gradient_BT[0, 0] > 0
    assert run_stages(build(IcePop, high=6.0), make_batch(logs - 1e-12, rewards)).gradient_BT[0, 0] > 0


@pytest.mark.parametrize("rule", RULES)
def test_the_contract(rule):
    check_estimator(rule)


def test_the_contract_of_tis_on_responses():
    check_estimator(TIS, {"level": "sequence", "cap": 8})
    assert build(TIS, level="sequence").scope == "sequence"


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (SAPO, {"tau_positive": 0}),
        (IcePop, {"low": 1.5}),
        (MIS, {"high": 0.5}),
        (DIS, {"epsilon_low": 1}),
        (TIS, {"cap": 0.5}),
        (TIS, {"level": "group"}),
        (TIS, {"factors": "three"}),
        (MIS, {"epsilon_low": 1}),
        (AIPO, {"cap": 0.9}),
        (GSPO, {"epsilon_high": 0}),
        (ESTR, {"tau": 0}),
    ],
)
def test_bad_settings_are_refused(rule, chosen):
    with pytest.raises(ValidationError):
        build(rule, **chosen)
