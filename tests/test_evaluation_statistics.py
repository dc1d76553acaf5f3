"""Scores and intervals against closed forms, brute force and scipy."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gmc.errors import UsageError
from gmc.evaluation import statistics
from gmc.evaluation.statistics import (
    clopper_pearson,
    estimate,
    majority_score,
    mcnemar,
    mean_estimate,
    paired_difference,
    pass_at_k,
)

pytestmark = pytest.mark.unit


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    samples = [index < correct for index in range(n)]
    subsets = [any(subset) for subset in combinations(samples, k)]
    assert pass_at_k(n, correct, k) == pytest.approx(sum(subsets) / len(subsets))


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_pass_at_k_end_points(case: tuple[int, int]) -> None:
    n, k = case
    assert pass_at_k(n, 0, k) == 0.0
    assert pass_at_k(n, n, k) == 1.0
    assert pass_at_k(n, k, 1) == pytest.approx(k / n)
    assert all(pass_at_k(n, 1, j) <= pass_at_k(n, 1, j + 1) for j in range(1, n))


@pytest.mark.parametrize(("n", "k", "chance"), [(8, 1, 0.3), (8, 4, 0.3), (8, 8, 0.3), (5, 3, 0.9)])
def test_pass_at_k_is_unbiased(n: int, k: int, chance: float) -> None:
    expected = sum(stats.binom.pmf(c, n, chance) * pass_at_k(n, c, k) for c in range(n + 1))
    assert expected == pytest.approx(1 - (1 - chance) ** k)


@pytest.mark.parametrize(("n", "k"), [(1, 2), (4, 5), (4, 0), (4, -1)])
@pytest.mark.parametrize("correct", [0, 1])
def test_pass_at_k_refuses_too_few_samples(n: int, k: int, correct: int) -> None:
    with pytest.raises(UsageError, match=f"pass@{k}"):
        pass_at_k(n, correct, k)


@pytest.mark.parametrize(
    ("predictions", "correct", "score"),
    [
        (["7", "7", "8"], [True, True, False], 1.0),
        (["7", "8", "8"], [True, False, False], 0.0),
        (["7", "8"], [True, False], 0.5),
        (["7", "8", "9"], [True, False, False], 1 / 3),
        (["7", None, None, None], [True, False, False, False], 1.0),
        ([None, None], [False, False], 0.0),
        (["7", "7", "8", "8", "9"], [True, True, False, False, False], 0.5),
    ],
)
def test_majority(predictions: list[str | None], correct: list[bool], score: float) -> None:
    assert majority_score(predictions, correct) == pytest.approx(score)


def test_interval_agrees_with_scipy() -> None:
    scores_P = np.random.default_rng(0).beta(0.6, 0.8, size=200)
    ours = estimate(scores_P, samples=4)
    theirs = stats.bootstrap(
        (scores_P,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.value == pytest.approx(scores_P.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=3e-3)
    assert (ours.samples, ours.problems) == (4, 200)


def test_interval_has_the_width_of_the_normal_approximation() -> None:
    scores_P = (np.random.default_rng(3).random(500) < 0.4).astype(float)
    ours = estimate(scores_P, samples=1)
    half = 1.96 * scores_P.std() / np.sqrt(500)
    assert (ours.high - ours.low) / 2 == pytest.approx(half, rel=0.05)


def test_samples_of_one_problem_do_not_shrink_the_interval() -> None:
    """Sixteen identical samples of each problem carry the information of one."""
    once_P = (np.random.default_rng(4).random(60) < 0.5).astype(float)
    repeated_P = np.repeat(once_P[:, None], 16, axis=1).mean(axis=1)
    assert estimate(once_P, samples=1).low == estimate(repeated_P, samples=16).low


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("count", [1, 30, 500])
def test_equal_scores_are_not_reported_as_certain(value: float, count: int) -> None:
    ours = estimate(np.full(count, value), samples=1)
    exact = stats.binomtest(int(value * count), count).proportion_ci(0.95, method="exact")
    assert (ours.low, ours.high) == pytest.approx((exact.low, exact.high))
    assert ours.high - ours.low > 0


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_agrees_with_scipy(case: tuple[int, int]) -> None:
    successes, trials = case
    exact = stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(successes, trials) == pytest.approx((exact.low, exact.high))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 16), min_size=1, max_size=30))
def test_interval_holds_its_value(correct: list[int]) -> None:
    ours = estimate(np.array(correct) / 16, samples=16)
    assert -1e-12 <= ours.low <= ours.value + 1e-12
    assert ours.value - 1e-12 <= ours.high <= 1 + 1e-12


def test_no_problems_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one problem"):
        estimate(np.array([]), samples=1)


def test_mean_over_benchmarks_weighs_each_once() -> None:
    generator = np.random.default_rng(5)
    large, small = generator.random(500), generator.random(30)
    ours = mean_estimate([large, small], samples=4)
    assert ours.value == pytest.approx((large.mean() + small.mean()) / 2)
    spread = 1.96 * np.sqrt(large.var() / 500 + small.var() / 30) / 2
    assert (ours.high - ours.low) / 2 == pytest.approx(spread, rel=0.05)
    assert ours.problems == 530


def test_paired_difference_uses_the_pairing() -> None:
    generator = np.random.default_rng(6)
    first_P = generator.random(100)
    second_P = np.clip(first_P + 0.05 + 0.01 * generator.standard_normal(100), 0, 1)
    ours = paired_difference(first_P, second_P)
    assert ours.value == pytest.approx((second_P - first_P).mean())
    assert 0 < ours.low < ours.value < ours.high < 0.1
    assert ours.p_value < 0.001
    back = paired_difference(second_P, first_P)
    assert (back.value, back.low, back.high) == pytest.approx((-ours.value, -ours.high, -ours.low), abs=1e-3)


def test_paired_difference_agrees_with_scipy() -> None:
    generator = np.random.default_rng(7)
    first_P, second_P = generator.random(80), generator.random(80)
    ours = paired_difference(first_P, second_P)
    theirs = stats.bootstrap(
        (second_P - first_P,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(8)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=8e-3)
    p_value = stats.ttest_rel(second_P, first_P).pvalue
    assert ours.p_value == pytest.approx(p_value, abs=0.03)


def test_identical_sides_do_not_differ() -> None:
    scores_P = np.random.default_rng(9).random(20)
    ours = paired_difference(scores_P, scores_P)
    assert (ours.value, ours.low, ours.high, ours.p_value) == (0, 0, 0, 1)
    with pytest.raises(UsageError, match="same problems"):
        paired_difference(scores_P, scores_P[:10])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_sign_test(outcomes: list[tuple[bool, bool]]) -> None:
    first_P, second_P = np.array([a for a, _ in outcomes]), np.array([b for _, b in outcomes])
    ours = mcnemar(first_P, second_P)
    b, c = sum(a and not z for a, z in outcomes), sum(z and not a for a, z in outcomes)
    assert (ours.only_first, ours.only_second) == (b, c)
    tail = sum(comb(b + c, i) for i in range(min(b, c) + 1)) / 2 ** (b + c)
    assert ours.p_value == pytest.approx(min(1.0, 2 * tail))


def test_a_mean_over_benchmarks_on_which_nothing_was_solved_is_not_certain():
    none, some = np.zeros(30), np.array([0.0, 1.0] * 50)
    for scores in ([none, none], [none, some], [1 - none, 1 - none]):
        found = mean_estimate(scores, samples=1)
        assert found.low <= found.value <= found.high
        assert found.high - found.low > 0.02
    alone = mean_estimate([none], samples=1)
    assert alone.high == pytest.approx(estimate(none, samples=1).high, abs=0.05)


def test_scores_of_which_the_first_is_the_highest_are_resampled():
    falling_P = np.array([1.0] + [0.0] * 9)
    assert estimate(falling_P, samples=1) == estimate(falling_P[::-1], samples=1)
    alone = mean_estimate([falling_P], samples=1)
    assert (alone.low, alone.high) == pytest.approx((0.0, 0.3), abs=1e-9)


def test_resamples_are_drawn_once_for_all_scores_of_a_benchmark_and_stay_what_they_were() -> None:
    scores_P = np.random.default_rng(3).random(300)
    statistics._resamples.cache_clear()
    found = [paired_difference(np.zeros(300), scores_P * factor, seed=5) for factor in (1.0, 2.0, 1.0)]
    assert statistics._resamples.cache_info().misses == 1
    draws = np.random.default_rng(5).multinomial(300, np.full(300, 1 / 300), size=10_000)
    assert (found[0].low, found[0].high) == pytest.approx(np.percentile(draws @ scores_P / 300, [2.5, 97.5]), rel=1e-12)
    assert found[2] == found[0] != found[1]
