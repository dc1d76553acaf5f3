"""`gmc lab exact`: against sums over ordered groups in plain floats, the published figures, the refusals, the command."""

import itertools
import json
import math

import pytest
import torch
from lab_exact_figures import BIAS_BY_GROUP_SIZE, QUALITY, bias_by_group_size, check_bounds, pairs_by_drift
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.recipes import recipes_directory
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.lab.arms import Arm
from gmc.lab.exact.grid import KEYS, ExactGrid, measurable, run_grid
from gmc.lab.exact.groups import all_groups_PG, log_probability_P
from gmc.lab.exact.moments import NotExactError, Setting, all_groups_batch, exact_moments
from gmc.lab.exact.pairs import draw_pairs
from gmc.lab.exact.policy import TabularPolicy
from gmc.lab.study_file import ResultLines, read_grids

pytestmark = pytest.mark.unit

V, T, G = 2, 2, 3
RESPONSES = list(itertools.product(range(V), repeat=T))


def log_softmax(logits, index):
    return logits[index] - math.log(sum(math.exp(value) for value in logits))


def token_logs(theta, response):
    """log π of both tokens: the first follows the empty prefix, the second the prefix of the first token."""
    first, second = response
    return [log_softmax(theta[0:2], first), log_softmax(theta[2 + 2 * first : 4 + 2 * first], second)]


def token_scores(theta, response):
    """∇ log π of both tokens, by its formula: one at the id, minus the probability, at the logits of the prefix."""
    scores = []
    for place, index in ((0, response[0]), (2 + 2 * response[0], response[1])):
        logits, score = theta[place : place + 2], [0.0] * 6
        for other in range(2):
            score[place + other] = (other == index) - math.exp(log_softmax(logits, other))
        scores.append(score)
    return scores


def token_weights(rule, logs, behavior, advantage):
    """∂objective/∂log π of each token of each response of one group, from the rules' formulas with their default settings."""
    ratios = [[math.exp(a - b) for a, b in zip(*both, strict=True)] for both in zip(logs, behavior, strict=True)]
    rhos = [math.prod(each) for each in ratios]
    if rule == "gmc":
        alpha = min(1.0, 1.28 / (sum(rhos) / len(rhos)))
        return [[alpha * rho * a] * T for rho, a in zip(rhos, advantage, strict=True)]
    if rule == "tic":
        return [[rho * a if rho <= 1.28 else 0.0] * T for rho, a in zip(rhos, advantage, strict=True)]
    kept = [[(r <= 1.2 if a > 0 else r >= 0.8) for r in each] for each, a in zip(ratios, advantage, strict=True)]
    return [[r * a * k for r, k in zip(*both, strict=True)] for *both, a in zip(ratios, kept, advantage, strict=True)]


def literal_moments(rule, pair, rewards):
    """E g and E‖g‖² over all ordered groups of three of four responses."""
    current, behavior = pair.current_D.tolist(), pair.behavior_D.tolist()
    scores = [token_scores(current, response) for response in RESPONSES]
    logs = [[token_logs(theta, response) for response in RESPONSES] for theta in (current, behavior)]
    mean, second = [0.0] * 6, 0.0
    for group in itertools.product(range(4), repeat=G):
        probability = math.exp(sum(sum(logs[1][k]) for k in group))
        average = sum(rewards[k] for k in group) / G
        factor = 1.0 if rule == "grpo" else G / (G - 1)
        advantage = [factor * (rewards[k] - average) for k in group]
        weights = token_weights(rule, [logs[0][k] for k in group], [logs[1][k] for k in group], advantage)
        gradient = [sum(weights[i][t] * scores[k][t][d] for i, k in enumerate(group) for t in range(T)) / G for d in range(6)]
        mean = [a + probability * b for a, b in zip(mean, gradient, strict=True)]
        second += probability * sum(value**2 for value in gradient)
    return mean, second


def small(direction="uphill", drift=1.5):
    policy = TabularPolicy(V, T)
    rewards_K = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    (pair,) = draw_pairs(policy, rewards_K, direction=direction, drift=drift, count=1, seed=5)
    return policy, rewards_K, pair


@pytest.mark.parametrize("rule", ["gmc", "tic", "grpo"])
@pytest.mark.parametrize("direction", ["uphill", "random"])
def test_moments_are_the_sum_over_all_ordered_groups(rule, direction):
    policy, rewards_K, pair = small(direction)
    found = exact_moments(build_estimator(rule), policy, pair, rewards_K, all_groups_PG(4, G))
    mean, second = literal_moments(rule, pair, rewards_K.tolist())
    assert found.mean_D.tolist() == pytest.approx(mean, abs=1e-12)
    assert found.second == pytest.approx(second, rel=1e-12)
    assert (found.removed is None) == (rule == "grpo")  # token clips are no weights of responses


def test_probabilities_of_all_groups_sum_to_one():
    groups_PG = all_groups_PG(8, 8)
    assert len(groups_PG) == 6435
    log_mu_K = torch.log_softmax(torch.arange(8).double(), 0)
    assert float(log_probability_P(groups_PG, log_mu_K).exp().sum()) == pytest.approx(1, abs=1e-12)


def test_the_gradient_of_j_is_its_derivative():
    policy, rewards_K, pair = small()
    theta_D = pair.current_D.clone().requires_grad_()
    (slope_D,) = torch.autograd.grad(policy.probabilities_K(theta_D) @ rewards_K, theta_D)
    assert torch.allclose(policy.gradient_D(pair.current_D, rewards_K), slope_D, atol=1e-14)


def test_every_bound_holds_near_and_far_from_the_behavior_policy():
    policy, rewards_K, pairs = pairs_by_drift(per_drift=1)
    groups_PG = all_groups_PG(8, 8)
    for pair in (pairs[0], pairs[5], pairs[-1]):
        check_bounds(policy, rewards_K, pair, groups_PG)


def test_quality_at_the_largest_drift():
    arms = [Arm.parse(text) for text in QUALITY]
    records, failed = run_grid(ExactGrid(drifts=[4.0]), arms, ResultLines(None, KEYS), lambda count, note: None)
    assert not failed
    assert [record["quality"] for record in records] == pytest.approx([QUALITY[text][4] for text in QUALITY], abs=0.6e-5)


@pytest.mark.parametrize("rule", list(BIAS_BY_GROUP_SIZE))
def test_only_gmc_loses_its_bias_with_the_group_size(rule):
    for group_size in (2, 4, 8):
        wanted = BIAS_BY_GROUP_SIZE[rule][group_size]
        assert bias_by_group_size(rule, group_size) == pytest.approx(wanted, abs=0.0051 if rule == "gmc" else 0.00051)


def test_a_batch_brings_exactly_what_the_rule_needs():
    policy, rewards_K, pair = small()
    groups_PG = all_groups_PG(4, 2)

    class Curious(Estimator):
        needs = frozenset({Need.ANCHOR_LOGP, Need.BEHAVIOR_ENTROPY, Need.LAGS, Need.SCORE_NORMS, Need.PLANNED_UPDATES})

        def objective(self, batch):
            return batch.logp_BT

    batch = all_groups_batch(Curious(), policy, pair, rewards_K, groups_PG, Setting(lag=7, planned_updates=9))
    assert set(batch.brought) == set(Curious.needs)
    response = RESPONSES[int(groups_PG[3, 1])]  # the second member of the fourth group
    halfway = ((pair.behavior_D + pair.current_D) / 2).tolist()
    assert batch.anchor_logp_BT[7].tolist() == pytest.approx(token_logs(halfway, response))
    behavior = pair.behavior_D.tolist()
    chances = [math.exp(log_softmax(behavior[0:2], index)) for index in range(2)]
    assert float(batch.behavior_entropy_BT[7, 0]) == pytest.approx(-sum(p * math.log(p) for p in chances))
    whole = [sum(column) for column in zip(*token_scores(pair.current_D.tolist(), response), strict=True)]
    assert float(batch.log_score_norm_B[7]) == pytest.approx(math.log(sum(value**2 for value in whole)))
    assert (float(batch.lag_BT[0, 0]), batch.planned_updates) == (7, 9)


@pytest.mark.parametrize(
    ("arm", "reason"),
    [
        ("gmc:epsilon=auto", "scope batch"),
        ("gac:base=gmc", "stage 3"),
        ("vcpo", "stage 4"),
    ],
)
def test_rules_of_the_whole_batch_are_refused_with_the_reason(arm, reason):
    policy, rewards_K, pair = small()
    with pytest.raises(NotExactError, match=reason):
        exact_moments(Arm.parse(arm).build(), policy, pair, rewards_K, all_groups_PG(4, 2))


ONE = ["lab", "exact", "--estimator", "gmc", "--estimator", "tic:epsilon=3", "--drift", "1", "--group-size", "2"]


def test_the_command_writes_json_csv_and_a_picture_and_goes_on_from_its_results(tmp_path):
    files = ["--out", str(tmp_path / "r.jsonl"), "--csv", str(tmp_path / "t.csv"), "--plot", str(tmp_path / "p.svg")]
    first = CliRunner().invoke(app, [*ONE, *files, "--json"])
    assert first.exit_code == 0, first.output
    cells = json.loads(first.stdout)["cells"]
    assert [cell["arm"] for cell in cells] == ["gmc", "tic epsilon=3"]
    assert (tmp_path / "t.csv").read_text().count("\n") == 3
    assert "tic epsilon=3" in (tmp_path / "p.svg").read_text()
    written = (tmp_path / "r.jsonl").read_bytes()
    (tmp_path / "r.jsonl").write_bytes(written[:-40])  # killed in the second line
    assert json.loads(CliRunner().invoke(app, [*ONE, *files, "--json"]).stdout)["cells"] == cells
    assert (tmp_path / "r.jsonl").read_bytes() == written


def test_a_table_names_refused_rules_and_a_rule_asked_for_by_name_is_an_error():
    everything = CliRunner().invoke(app, ["lab", "exact", "--drift", "1", "--group-size", "2"])
    assert everything.exit_code == 0
    assert "not measured: vcpo: it scales the learning rate" in " ".join(everything.output.split())
    refused = CliRunner().invoke(app, ["lab", "exact", "--estimator", "vcpo"])
    assert refused.exit_code == 2
    assert "estimator vcpo has no exact moments" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[grid]]\ndrift = [1.0]\n", "grid 1: unknown key drift"),
        ("[[grid]]\ngroup_sizes = [3]\n", "divisors of responses"),
        ("[[grid]]\nrewarded = [8]\n", "rewarded must name some of the responses 0 to 7"),
        ("drifts = [1.0]\n", "a study is one or more [[grid]] tables"),
        ("[[grid]]\nvocabulary = 8\ntokens = 6\n", "responses are more than"),
        ("[[grid]]\nvocabulary = 4\nrewarded = [1]\n", "groups; take fewer tokens"),
        ("[[grid]]\n[grid.rules]\ngmc = { epsilon = [0.1, 0.1] }\n", "listed twice"),
    ],
)
def test_a_bad_study_is_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "s.toml").write_text(text)
    result = CliRunner().invoke(app, ["lab", "exact", str(tmp_path / "s.toml")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["s0", "s8-exact"])
def test_shipped_studies_ask_only_for_rules_with_exact_moments(name):
    for grid in read_grids(recipes_directory() / "lab" / f"{name}.toml", ExactGrid):
        arms, refused = measurable(grid.arms, strict=bool(grid.rules))
        assert arms
        assert len(arms) + len(refused) == len(grid.arms)
