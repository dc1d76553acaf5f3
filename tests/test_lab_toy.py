"""The toy model: its pieces against plain floats and autograd, its runs against an independent implementation."""

import itertools
import math

import pytest
import torch

from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.gradient import SKIP
from gmc.estimators.registry import build_estimator
from gmc.lab.arms import Arm
from gmc.lab.toy.draws import draw_groups
from gmc.lab.toy.one_step import measure_steps, value_gradient
from gmc.lab.toy.policy import MarkovPolicy, at_cells
from gmc.lab.toy.sampled import log_score_norms
from gmc.lab.toy.schedule import make_schedule
from gmc.lab.toy.steps import Ascent
from gmc.lab.toy.task import BASE_VALUE, MOST_ERRORS, Task, make_tasks
from gmc.lab.toy.train import Plan, final_value, train_runs, worst_drop
from gmc.store.logs import GroupRef

SMALL = MarkovPolicy(vocabulary=2, tokens=4, embedding=3)


def plan(delay, updates=50, **changed):
    return Plan(make_schedule(delay, updates=updates, prompts=8, group_size=8, tokens=12), updates=updates, **changed)


def small_parameters(runs=2, prompts=3):
    draw = torch.Generator().manual_seed(1)
    theta_RD = torch.randn(runs, SMALL.parameters, generator=draw, dtype=torch.float64)
    prompts_RPE = torch.randn(runs, prompts, SMALL.embedding, generator=draw, dtype=torch.float64)
    return theta_RD, prompts_RPE


def literal_logs(theta, prompt, response):
    """log π of each token of a response, from the definition: logits U[t, previous] + e·B[t], U first in θ."""
    ids, embedding, previous, logs = SMALL.vocabulary, SMALL.embedding, SMALL.vocabulary, []
    first = SMALL.tokens * (ids + 1) * ids
    for t, chosen in enumerate(response):
        logits = []
        for v in range(ids):
            own = theta[(t * (ids + 1) + previous) * ids + v]
            logits.append(own + sum(prompt[e] * theta[first + (t * embedding + e) * ids + v] for e in range(embedding)))
        logs.append(logits[chosen] - math.log(sum(map(math.exp, logits))))
        previous = chosen
    return logs


@pytest.mark.unit
def test_the_full_policy_has_528_parameters():
    assert MarkovPolicy().parameters == 528


@pytest.mark.unit
def test_value_is_the_chance_of_few_errors_over_all_responses():
    theta_RD, prompts_RME = small_parameters()
    target_RMT = torch.randint(0, 2, (2, 3, SMALL.tokens), generator=torch.Generator().manual_seed(2))
    found_R = Task(SMALL, theta_RD, prompts_RME, target_RMT).value(theta_RD)
    for run in range(2):
        total = 0.0
        for prompt, target in zip(prompts_RME[run].tolist(), target_RMT[run].tolist(), strict=True):
            for response in itertools.product(range(2), repeat=SMALL.tokens):
                if sum(a != b for a, b in zip(response, target, strict=True)) <= MOST_ERRORS:
                    total += math.exp(sum(literal_logs(theta_RD[run].tolist(), prompt, response)))
        assert float(found_R[run]) == pytest.approx(total / 3, abs=1e-13)


@pytest.mark.unit
def test_sampling_inverts_the_distribution_token_by_token():
    theta_RD, prompts_RPE = small_parameters()
    uniforms_RPGT = torch.rand(2, 3, 5, SMALL.tokens, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    cells_RPTG = SMALL.sample(SMALL.log_table(theta_RD, prompts_RPE), uniforms_RPGT)
    for run, prompt, member in itertools.product(range(2), range(3), range(5)):
        response = []
        for t in range(SMALL.tokens):
            zero = math.exp(literal_logs(theta_RD[run].tolist(), prompts_RPE[run, prompt].tolist(), [*response, 0])[-1])
            response.append(int(float(uniforms_RPGT[run, prompt, member, t]) > zero))
        assert (cells_RPTG[run, prompt, :, member] % 2).tolist() == response
        assert (cells_RPTG[run, prompt, :, member] // 2).tolist() == [2, *response[:-1]]


@pytest.mark.unit
def test_gradients_and_score_norms_are_the_derivatives_of_log_probs():
    theta_RD, prompts_RPE = small_parameters()
    draw = torch.Generator().manual_seed(4)
    uniforms_RPGT = torch.rand(2, 3, 5, SMALL.tokens, generator=draw, dtype=torch.float64)
    worth_RPTG = torch.randn(2, 3, SMALL.tokens, 5, generator=draw, dtype=torch.float64)
    leaf_RD = theta_RD.clone().requires_grad_()
    table = SMALL.log_table(leaf_RD, prompts_RPE)
    cells_RPTG = SMALL.sample(table.detach(), uniforms_RPGT)
    logp_RPTG = at_cells(table, cells_RPTG)
    (wanted_RD,) = torch.autograd.grad((worth_RPTG * logp_RPTG).sum(), leaf_RD, retain_graph=True)
    found_RD = SMALL.gradient(table.detach(), prompts_RPE, cells_RPTG, worth_RPTG)
    assert torch.allclose(found_RD, wanted_RD, atol=1e-12)
    norms_B = log_score_norms(prompts_RPE, cells_RPTG, table.detach())
    for row, (run, prompt, member) in enumerate(itertools.product(range(2), range(3), range(5))):
        (score_RD,) = torch.autograd.grad(logp_RPTG[run, prompt, :, member].sum(), leaf_RD, retain_graph=True)
        assert float(norms_B[row]) == pytest.approx(math.log(float(score_RD.square().sum())), abs=1e-12)


@pytest.mark.unit
def test_every_task_starts_at_the_base_value_and_its_target_is_the_teachers_best():
    task = make_tasks([0, 5])
    assert task.value(task.start_RD).tolist() == pytest.approx([BASE_VALUE] * 2, abs=1e-6)
    assert float(task.value(20 * task.start_RD)[0]) > 0.95
    assert not torch.equal(task.start_RD[0], task.start_RD[1])


@pytest.mark.unit
@pytest.mark.parametrize("kind", ["adam", "sgd", "one-norm"])
def test_steps_are_those_of_torch(kind):
    draw = torch.Generator().manual_seed(6)
    theta_RD = torch.randn(3, 7, generator=draw, dtype=torch.float64)
    rate_R = torch.tensor([0.1, 0.02, 0.3], dtype=torch.float64)
    ascent, found_RD = Ascent(kind, theta_RD), theta_RD.clone()
    leaves = [theta_RD[run].clone().requires_grad_() for run in range(3)]
    cls = torch.optim.SGD if kind == "sgd" else torch.optim.Adam
    optimizers = [cls([leaf], lr=float(rate)) for leaf, rate in zip(leaves, rate_R, strict=True)]
    for step in range(5):
        gradient_RD = torch.randn(3, 7, generator=draw, dtype=torch.float64)
        active_R = torch.tensor([True, step != 2, True])
        found_RD = ascent.step(found_RD, gradient_RD, rate_R, active_R)
        for run, (leaf, optimizer) in enumerate(zip(leaves, optimizers, strict=True)):
            length = float(gradient_RD[run].norm()) if kind == "one-norm" else 1.0
            leaf.grad = -gradient_RD[run] / length
            if active_R[run]:
                optimizer.step()
    assert torch.allclose(found_RD, torch.stack([leaf.detach() for leaf in leaves]), atol=1e-12)


@pytest.mark.unit
def test_a_zero_gradient_of_one_norm_stays_zero():
    theta_RD = torch.ones(1, 3, dtype=torch.float64)
    moved_RD = Ascent("one-norm", theta_RD).step(theta_RD, torch.zeros_like(theta_RD), torch.ones(1, dtype=torch.float64))
    assert torch.equal(moved_RD, theta_RD)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("delay", "versions"),
    [
        ("0", [0, 1, 2, 3, 4, 5]),
        ("2", [0, 0, 0, 1, 2, 3]),
        ("ramp:2", [0, 1, 1, 2, 2, 3]),
        ("block:3", [0, 0, 0, 3, 3, 3]),
        ("reuse:2", [0, 0, 2, 2, 4, 4]),
    ],
)
def test_a_schedule_follows_the_installed_delay(delay, versions):
    schedule = make_schedule(delay, updates=6, prompts=2, group_size=2, tokens=12)
    assert [schedule.versions(update) for update in range(6)] == [[version] * 2 for version in versions]
    assert all(schedule.last_use[version] == max(n for n, v in enumerate(versions) if v == version) for version in versions)
    used_twice = schedule.groups_NP[0] == schedule.groups_NP[1]
    assert used_twice == delay.startswith("reuse")


@pytest.mark.unit
@pytest.mark.parametrize("delay", ["live", "shards", "schedule:missing.parquet"])
def test_a_delay_of_real_rollouts_is_refused(delay):
    with pytest.raises(UsageError, match="delay"):
        make_schedule(delay, updates=6, prompts=2, group_size=2, tokens=12)


@pytest.mark.unit
def test_draws_belong_to_seed_and_batch():
    sizes = {"all_prompts": 32, "prompts": 2, "group_size": 3, "tokens": 4}
    whole = draw_groups([0, 7], [GroupRef(5, 0), GroupRef(5, 1)], **sizes)
    mixed = draw_groups([7], [GroupRef(5, 1), GroupRef(9, 0)], **sizes)
    assert torch.equal(whole[0][1, 1], mixed[0][0, 0])
    assert torch.equal(whole[1][1, 1], mixed[1][0, 0])
    assert not torch.equal(whole[1][0, 1], whole[1][1, 1])


@pytest.mark.train
@pytest.mark.parametrize(
    ("rule", "delay", "optimizer", "finals"),
    [
        ("gmc", "16", "adam", [0.55537439, 0.44452148, 0.59264160, 0.55354637]),
        ("tic", "16", "adam", [0.52966445, 0.49783288, 0.55584305, 0.57436545]),
        ("grpo", "16", "adam", [0.50448821, 0.63360396, 0.52685606, 0.66173040]),
        ("truncated", "8", "sgd", [0.30057278, 0.30229188, 0.30070846, 0.30282238]),
    ],
)
def test_sixty_updates_end_where_an_independent_implementation_does(rule, delay, optimizer, finals):
    """The figures are from a numpy program of the same settings: seeds 0 and 1, rates 0.04 and 0.16."""
    curves = train_runs(build_estimator(rule), plan(delay, 60, optimizer=optimizer), [0, 1], [0.04, 0.16])
    assert final_value(curves.value_RE).tolist() == pytest.approx(finals, abs=2e-7)


class AlsoBatch(Estimator):
    """Plain weights, declared to look at the whole batch."""

    name, scope = "also-batch", "batch"

    def objective(self, batch):
        assert batch.groups == 8  # one run's
        return batch.log_rho_B.detach().exp()[:, None] * batch.advantages_B1 * batch.logp_BT


@pytest.mark.train
def test_one_batch_a_run_and_all_runs_at_once_agree_and_runs_do_not_mix():
    together = train_runs(build_estimator("is"), plan("4"), [0, 3], [0.02, 0.08])
    apart = train_runs(AlsoBatch(), plan("4"), [0, 3], [0.02, 0.08])
    alone = train_runs(build_estimator("is"), plan("4"), [3], [0.08])
    assert torch.allclose(together.value_RE, apart.value_RE, atol=1e-10)
    assert torch.allclose(together.value_RE[3], alone.value_RE[0], atol=1e-10)
    assert together.spread_R.shape == (4,)


class Looks(Estimator):
    """Compares what it is brought with what a fixed delay of 3 makes of it."""

    name = "looks"
    needs = frozenset(Need) & frozenset(
        {Need.BEHAVIOR_LOGP, Need.LAGS, Need.ANCHOR_LOGP, Need.BEHAVIOR_ENTROPY, Need.SCORE_NORMS, Need.PLANNED_UPDATES}
    )
    anchor_lag = 3

    def objective(self, batch):
        assert batch.planned_updates == 50
        assert batch.lag_BT.unique().tolist() == [min(3, batch.update)]
        assert torch.equal(batch.anchor_logp_BT, batch.behavior_logp_BT)  # the anchor is the version that sampled
        assert (batch.behavior_entropy_BT > 0).all()
        assert batch.log_score_norm_B.shape == (len(batch.logp_BT),)
        assert batch.update < 1 or not torch.equal(batch.logp_BT.detach(), batch.behavior_logp_BT)
        return batch.advantages_B1 * batch.logp_BT


@pytest.mark.train
def test_a_rule_sees_exact_needs():
    train_runs(Looks(), plan("3"), [0], [0.04])


class Skips(AlsoBatch):
    """Takes no gradient at all."""

    def gradient(self, gradient):
        return SKIP


class HalfRate(AlsoBatch):
    """Halves every learning rate."""

    def learning_rate_scale(self, batch):
        return 0.5


@pytest.mark.train
def test_stages_three_and_four_act_on_each_run():
    assert train_runs(Skips(), plan("0"), [0, 1], [0.5]).value_RE.flatten().tolist() == pytest.approx(
        [BASE_VALUE] * 10, abs=1e-6
    )
    half = train_runs(HalfRate(), plan("0"), [0], [0.08])
    assert torch.allclose(half.value_RE, train_runs(build_estimator("is"), plan("0"), [0], [0.04]).value_RE, atol=1e-10)


@pytest.mark.unit
def test_final_and_worst_drop_of_a_curve():
    value_RE = torch.tensor([[0.3, 0.6, 0.5, 0.7, 0.4, 0.9, 0.8]])
    assert float(final_value(value_RE)[0]) == pytest.approx((0.5 + 0.7 + 0.4 + 0.9 + 0.8) / 5)
    assert float(worst_drop(value_RE)[0]) == pytest.approx(0.3)


@pytest.mark.unit
def test_the_gradient_of_the_value_is_its_slope():
    task = make_tasks([2])
    slope_D = value_gradient(task, task.start_RD)
    way_D = torch.randn(528, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    ahead, behind = (float(task.value(task.start_RD + sign * 1e-5 * way_D)[0]) for sign in (1, -1))
    assert float(slope_D @ way_D) == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


@pytest.mark.train
def test_steps_on_fresh_data_agree_and_on_old_data_only_plain_weighting_is_unbiased():
    arms = [Arm("is"), Arm("gmc"), Arm("truncated")]
    steps = measure_steps(arms, ages=[0, 15], rate=0.04, seeds=1, batches=400)
    fresh, old = steps[:3], steps[3:]
    assert all(one.scale == pytest.approx(fresh[0].scale, rel=1e-9) for one in fresh)  # every ratio is 1
    assert (fresh[0].spread, fresh[0].cosine) == (pytest.approx(0, abs=1e-12), pytest.approx(1, abs=0.1))
    error = (old[0].relative_variance / 400) ** 0.5
    assert old[0].scale == pytest.approx(1, abs=3 * error)
    assert old[2].scale < old[1].scale < old[0].scale
    assert old[2].relative_variance < old[1].relative_variance < old[0].relative_variance
    wanted = old[1].scale ** 2 / (old[1].scale ** 2 / old[1].cosine ** 2 + old[1].relative_variance)
    assert old[1].quality == pytest.approx(wanted, rel=1e-6)
