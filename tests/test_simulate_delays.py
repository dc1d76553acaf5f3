"""Simulated delays: the figures known from elsewhere, statistics against plain arithmetic, lengths, theory, pictures."""

import math
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from gmc.delays.base import DelayModel
from gmc.delays.fixed import FixedDelay
from gmc.delays.registry import parse_delay
from gmc.errors import DataError, GmcError, UsageError
from gmc.simulator.lengths import DrawnLengths, RecordedLengths, lengths_from_spec, lengths_of_shards
from gmc.simulator.plots import save_plot
from gmc.simulator.simulate import simulate
from gmc.simulator.statistics import LENGTH_EDGES, DelayStatistics, LengthStatistics
from gmc.simulator.theory import (
    bound_terms,
    gmc_divisor,
    minimizing_epsilon,
    optimal_epsilon,
    rate_factor,
    theory_record,
    tic_divisor,
)

pytestmark = pytest.mark.unit


def paper_like(spec, updates, seed=0):
    """Lognormal lengths of mean 570 tokens and sigma 0.6, 8 × 8 responses, as far as the paper's set-up is known."""
    lengths = DrawnLengths(570, 0.6, prompts=8, group_size=8, seed=seed)
    return simulate(parse_delay(spec, prompts=8, group_size=8, seed=seed, updates=updates), lengths, updates=updates)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_paper_s_clock_at_group_mean_has_mean_delay_157(seed):
    assert paper_like("length:28:group=mean", 2000, seed).delays.mean == pytest.approx(157, rel=0.02)


@pytest.mark.parametrize(("updates", "low", "high"), [(800, 240, 255), (1600, 280, 300)])
def test_the_paper_s_clock_at_the_slowest_member_has_mean_delay_240_to_300(updates, low, high):
    assert low <= paper_like("length:28", updates).delays.mean <= high


def test_length_delays_depend_on_length_and_leave_long_responses_for_later():
    result = paper_like("length:28", 400)
    assert result.delays.length_correlation > 0.1
    assert result.trained.summary()["mean"] < result.launched.summary()["mean"]
    assert result.launched.summary()["responses"] == result.trained.summary()["responses"] + 8 * result.waiting
    fixed = paper_like("100", 400)
    assert fixed.delays.length_correlation == pytest.approx(0, abs=0.05)
    assert fixed.trained.summary() == fixed.launched.summary()


def test_updates_that_waited_are_counted():
    assert paper_like("length:0", 50).summary()["waited_share"] == 0
    assert paper_like("5", 50).summary()["waited_share"] is None
    # With equal durations only the first update waits.
    assert paper_like("uniform:7:7", 50).summary()["waited_share"] == 1 / 50


class Losing(FixedDelay):
    """A broken model that says one group fewer is waiting."""

    @property
    def waiting(self):
        return max(0, super().waiting - 1)


class Dropping(Losing):
    """A broken model that is right at the end only."""

    @property
    def waiting(self):
        return super().waiting if self._taken < 10 else FixedDelay.waiting.fget(self)


@pytest.mark.parametrize(("model", "message"), [(Losing, "groups were lost"), (Dropping, "Little's law")])
def test_a_model_that_loses_groups_is_found_out(model: type[DelayModel], message):
    lengths = DrawnLengths(50, 0.5, prompts=4, group_size=2, seed=0)
    broken = model(3, prompts=4, updates=14)
    with pytest.raises(GmcError, match=message):
        simulate(broken, lengths, updates=10)


pairs = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3000)), min_size=1, max_size=120)


@examples(80)
@given(pairs, st.integers(1, 5))
@example([(5, 30), (5, 70), (5, 90)], 2)
@example([(2, 40), (6, 40), (90, 40)], 3)
@example([(0, 0), (1, 1), (90, 3000), (17, 1448), (3, 2)], 1)
def test_delay_statistics_equal_exact_arithmetic(pairs, parts):
    statistics = DelayStatistics()
    for part in range(parts):
        if chosen := pairs[part::parts]:
            statistics.add(np.array([delay for delay, _ in chosen]), np.array([length for _, length in chosen]))
    delays = sorted(delay for delay, _ in pairs)
    count = len(delays)
    summary = statistics.summary()
    assert summary["responses"] == count
    assert summary["max"] == delays[-1]
    assert summary["mean"] == pytest.approx(float(Fraction(sum(delays), count)))
    assert summary["fourth_moment"] == pytest.approx(float(Fraction(sum(delay**4 for delay in delays), count)))
    for share in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
        # The smallest delay that at least this share does not exceed.
        expected = next(d for d in delays if sum(x <= d for x in delays) >= Fraction(str(share)) * count)
        assert summary["quantiles"][f"{share:g}"] == expected
    x, y = np.array([length for _, length in pairs], float), np.array([delay for delay, _ in pairs], float)
    if x.std() < 1e-6 or y.std() < 1e-6:
        assert summary["length_correlation"] is None
    else:
        assert summary["length_correlation"] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)
    for length, row in zip(LENGTH_EDGES, statistics.counts_LD, strict=False):
        inside = [d for d, value in pairs if length <= max(value, 1) < length * 2**0.5 * (1 - 1e-12)]
        assert row.sum() == len(inside)
        assert row @ np.arange(len(row)) == sum(inside)


@examples(50)
@given(st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=30), min_size=1, max_size=6))
def test_length_statistics_equal_exact_arithmetic(parts):
    statistics = LengthStatistics()
    for part in parts:
        statistics.add(np.array(part))
    values = sorted(value for part in parts for value in part)
    summary = statistics.summary()
    assert summary["responses"] == len(values)
    assert summary["mean"] == pytest.approx(sum(values) / len(values))
    assert summary["quantiles"]["0.5"] == values[math.ceil(len(values) / 2) - 1]


def test_drawn_lengths_have_the_arithmetic_mean_and_the_sigma_of_the_log():
    drawn = np.concatenate([DrawnLengths(570, 0.6, prompts=100, group_size=8, seed=2).of_batch(b) for b in range(50)])
    assert drawn.mean() == pytest.approx(570, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.6, rel=0.02)
    assert drawn.min() >= 1


def test_recorded_lengths_are_used_in_order_and_repeated(tmp_path):
    (tmp_path / "lengths.txt").write_text("".join(f"{value}\n" for value in range(1, 15)) + "\n")
    source = lengths_from_spec(str(tmp_path / "lengths.txt"), prompts=3, group_size=2, seed=0)
    assert source.of_batch(0).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert source.of_batch(1).tolist() == [[7, 8], [9, 10], [11, 12]]
    assert source.of_batch(2).tolist() == source.of_batch(0).tolist()
    assert "7 groups of 2 lengths" in source.note
    few = RecordedLengths(np.array([[1, 2], [3, 4]]), "two groups", prompts=3)
    assert few.of_batch(0).tolist() == [[1, 2], [3, 4], [1, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("12\n7.5\n", "line 2: '7.5' is not a length"),
        ("12\n-3\n", "line 2: '-3'"),
        ("5\n", "1 lengths, fewer than one group of 2"),
    ],
)
def test_a_bad_length_file_is_refused_by_line(content, message, tmp_path):
    (tmp_path / "l.txt").write_text(content)
    with pytest.raises(DataError) as error:
        lengths_from_spec(str(tmp_path / "l.txt"), prompts=1, group_size=2, seed=0)
    assert message in str(error.value)


@pytest.mark.parametrize("spec", ["lognormal", "lognormal:570", "lognormal:a:b", "lognormal:0:1", "lognormal:5:-1", "none.txt"])
def test_a_bad_length_spec_is_refused(spec):
    with pytest.raises(UsageError, match=f"--lengths {spec}: "):
        lengths_from_spec(spec, prompts=1, group_size=2, seed=0)


def test_lengths_of_shards_must_agree():
    shards = [("a", [[1, 2], [3, 4]]), ("b", [[5, 6], [7, 8]])]
    source = lengths_of_shards(shards, "rollouts", prompts=None, group_size=None)
    assert source.of_batch(1).tolist() == [[5, 6], [7, 8]]
    assert lengths_of_shards(shards, "rollouts", prompts=4, group_size=2).of_batch(0).shape == (4, 2)
    with pytest.raises(DataError, match="b: holds groups of 3 responses, earlier ones have 2"):
        lengths_of_shards([shards[0], ("b", [[1, 2, 3]])], "rollouts", prompts=None, group_size=None)
    with pytest.raises(UsageError, match="--group-size 8: the groups in rollouts have 2 responses"):
        lengths_of_shards(shards, "rollouts", prompts=None, group_size=8)
    with pytest.raises(DataError, match="no rollouts to take lengths from; run gmc rollout"):
        lengths_of_shards([], "rollouts", prompts=None, group_size=None)


def test_theory_in_figures():
    # ε = 0.28: log(1.56) = 0.4446858, c = log(1.28) - 0.28/1.28 = 0.2468601 - 0.21875 = 0.0281101.
    assert gmc_divisor(0.28) == pytest.approx(0.4446858, abs=1e-7)
    assert tic_divisor(0.28) == pytest.approx(0.0281101, abs=1e-7)
    assert rate_factor(0.28) == pytest.approx((0.0281101 / 0.4446858) ** 0.4, rel=1e-5)
    # 128^(1/7) = 2 and (2^14)^(-3/14) = 1/8.
    assert optimal_epsilon(128.0, 2**14) == pytest.approx(2 / 8)
    record = theory_record(tau4=1.0, eta=0.01, updates=10_000, epsilon=0.28, group_size=32)
    assert record["near_policy_group_factor"] == pytest.approx(0.25)
    assert record["largest_fourth_moment"] == pytest.approx(1e6)
    terms = bound_terms(lambda epsilon: 0.5 * epsilon, eta=0.1, updates=100, epsilon=1.0, tau4=1000.0)
    assert terms == pytest.approx({"optimization": 0.1, "variance": 0.2, "delay": 8 * 1e-4 * 1000 / 0.25})
    assert record["gmc"]["sum"] == pytest.approx(1e-2 + 1.28e-2 + 1.28**3 * 1e-8 / 0.4446858**2)


def plain_bound(epsilon, tau4, updates, divisor):
    """The bound at η = N^(−1/2), in plain floats."""
    eta = 1 / math.sqrt(updates)
    return 1 / (eta * updates) + (1 + epsilon) * eta + (1 + epsilon) ** 3 * eta**4 * tau4 / divisor(epsilon) ** 2


PLAIN = {
    "gmc": lambda epsilon: math.log(1 + 2 * epsilon),
    "tic": lambda epsilon: math.log(1 + epsilon) - epsilon / (1 + epsilon),
}


@pytest.mark.parametrize("rule", PLAIN)
@pytest.mark.parametrize("delay", [1, 8, 64, 256])
def test_the_bound_is_smallest_where_it_is_said_to_be(rule, delay):
    grid = [0.001 * 1.002**step for step in range(5000)]
    best = min(grid, key=lambda epsilon: plain_bound(epsilon, delay**4, 800, PLAIN[rule]))
    record = theory_record(tau4=delay**4, eta=800**-0.5, updates=800, epsilon=0.28, group_size=8)[rule]
    assert record["minimizing_epsilon"] == pytest.approx(best, rel=0.002)
    assert record["sum"] == pytest.approx(plain_bound(0.28, delay**4, 800, PLAIN[rule]))


def minimizers(updates):
    """GMC's minimizing cap at fixed delays of a run, the start-up included."""
    found = {}
    for delay in (64, 128, 256, 512):
        tau4 = sum(min(update, delay) ** 4 for update in range(updates)) / updates
        found[delay] = minimizing_epsilon(gmc_divisor, eta=updates**-0.5, updates=updates, tau4=tau4)
    return found


def test_from_delay_64_on_the_minimizing_cap_is_0_77_whatever_the_delay():
    assert minimizers(800) == pytest.approx(dict.fromkeys((64, 128, 256, 512), 0.767), abs=5e-4)
    assert minimizers(400) == pytest.approx(dict.fromkeys((64, 128, 256, 512), 0.767), abs=5e-4)
    assert minimizing_epsilon(tic_divisor, eta=800**-0.5, updates=800, tau4=256.0**4) == pytest.approx(2.084, abs=5e-4)
    assert minimizing_epsilon(gmc_divisor, eta=0.1, updates=100, tau4=0.0) == 0.0


def test_the_formula_for_the_best_cap_ends_where_the_bound_gets_worse_by_it():
    assert optimal_epsilon(12.0**4, 800) == pytest.approx(12 ** (4 / 7) * 800 ** (-3 / 14))
    assert optimal_epsilon(13.0**4, 800) is None
    assert optimal_epsilon(100.0**1.5, 100) == pytest.approx(1.0)
    pointed_at = 256 ** (4 / 7) * 800 ** (-3 / 14)
    assert pointed_at == pytest.approx(5.676, abs=1e-3)
    worse = plain_bound(pointed_at, 256**4, 800, PLAIN["gmc"]) / plain_bound(0.28, 256**4, 800, PLAIN["gmc"])
    assert worse == pytest.approx(4.4, abs=0.05)
    assert theory_record(tau4=256.0**4, eta=800**-0.5, updates=800, epsilon=0.28, group_size=8)["optimal_epsilon"] is None


def test_the_theory_of_a_delay_says_whether_it_keeps_the_rate():
    record = theory_record(tau4=31.0**4, eta=0.01, updates=10_000, epsilon=0.28, group_size=8)
    assert record["keeps_no_delay_rate"] is True
    assert theory_record(tau4=32.0**4, eta=0.01, updates=10_000, epsilon=0.28, group_size=8)["keeps_no_delay_rate"] is False
    assert record["constants"] == "set to 1"
    assert "bound_vanishes" not in record  # true of every delay there is
    assert record["tic"]["delay"] / record["gmc"]["delay"] == pytest.approx((gmc_divisor(0.28) / tic_divisor(0.28)) ** 2)


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_the_picture_is_drawn_and_the_same_again(name, start, tmp_path):
    delays = paper_like("length:28", 60).delays
    save_plot(tmp_path / name, delays, "title")
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    save_plot(tmp_path / name, delays, "title")
    assert (tmp_path / name).read_bytes() == first


def test_a_picture_of_one_constant_delay_is_drawn(tmp_path):
    save_plot(tmp_path / "p.png", paper_like("0", 5).delays, "title")
    with pytest.raises(UsageError, match=r"--plot p\.pdf: the name must end in \.png or \.svg"):
        save_plot(tmp_path.relative_to(tmp_path) / "p.pdf", paper_like("0", 5).delays, "title")
