"""`gmc estimators compare`: gradients against literal ones, what on-policy rollouts must show, and refusals."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model
from typer.testing import CliRunner

from gmc import comparison
from gmc.cli.app import app
from gmc.comparison.compare import compare_rules
from gmc.comparison.measure import Measurer
from gmc.comparison.stored import load_stored
from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import DataError, UsageError
from gmc.estimators.batch import Need
from gmc.estimators.gmc import GMC
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.registry import build_estimator
from gmc.models import load_model, tokenizer_hash, weights_hash
from gmc.rewards.base import Score
from gmc.scoring.scorer import Scorer
from gmc.store.policies import publish_policy
from gmc.store.shards.groups import token_ids
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.writer import write_shard

PROMPTS, GROUP_SIZE, MAX_TOKENS = 6, 4, 12
SAMPLING = Sampling(temperature=1.0, max_tokens=MAX_TOKENS)
RULES = ("gmc", "tic", "grpo", "is", "truncated", "token-gmc", "vcpo", "a3po", "gac", "decoupled-ppo")


def reward_of(text):
    return float(any(character in text for character in "aeiou"))


def write_rollouts(folder, model, *, version=0, batches=2, first=0, kinds=("engine", "trainer"), run_id="a-run"):
    """Shards sampled by `model`, rewarded for containing a vowel."""
    engine, scorer = TransformersEngine(model, compute_dtype=None), Scorer(model)
    draw = random.Random(version)
    for batch in range(first, first + batches):
        prompts = [model.tokenizer("".join(draw.choices("abc123+ ", k=5)))["input_ids"] for _ in range(PROMPTS)]
        seeds = [draw.randrange(2**40) for _ in prompts]
        groups = engine.generate(prompts, group_size=GROUP_SIZE, sampling=SAMPLING, seeds=seeds)
        logp = scorer.score(prompts, [[one.token_ids for one in group] for group in groups]).logp_BT
        rows = []
        for index, one in enumerate(completion for group in groups for completion in group):
            text = model.tokenizer.decode(one.token_ids, skip_special_tokens=True)
            rows.append(
                Rollout(
                    run_id=run_id,
                    problem_id=str(index // GROUP_SIZE),
                    batch=batch,
                    group=index // GROUP_SIZE,
                    sample=index % GROUP_SIZE,
                    policy_version=version,
                    prompt_token_ids=prompts[index // GROUP_SIZE],
                    response_token_ids=one.token_ids,
                    finish_reason=one.finish_reason,
                    reward=reward_of(text),
                    status="correct" if reward_of(text) else "incorrect",
                    answer="1",
                    prediction=None,
                    prompt="",
                    response=text,
                    engine_logprobs=one.logprobs if "engine" in kinds else None,
                    trainer_logprobs=logp[index, : len(one.token_ids)].tolist() if "trainer" in kinds else None,
                )
            )
        metadata = ShardMetadata(
            run_id=run_id,
            model_id=model.source,
            weights_hash=weights_hash(model.weights()),
            tokenizer_hash=tokenizer_hash(model.tokenizer),
            vocabulary_size=model.vocabulary_size,
            engine="transformers",
            engine_version="0",
            sampling={name: str(value) for name, value in vars(SAMPLING).items()},
            template_id="none",
            logprob_kinds=kinds,
            seed=0,
            group_size=GROUP_SIZE,
            gmc_version="0",
        )
        write_shard(folder / f"b{batch:06d}-v{version:06d}.parquet", rows, metadata)


def moved(model, size=0.02):
    """The same model some noise away."""
    other = tiny_model()
    other.network.load_state_dict(model.network.state_dict())
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.add_(size * torch.randn_like(parameter) * parameter.std() if parameter.numel() > 1 else 0.0)
    return other


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def shards(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rollouts")
    write_rollouts(folder, model)
    return folder


def rows_of(model, shards, names=RULES, **options):
    stored = load_stored(shards, model, shards=8, policy_version=options.pop("policy_version", 0))
    result = compare_rules([build_estimator(name) for name in names], Scorer(model), stored, **options)
    return {row.name: row for row in result.rows}, result


@pytest.mark.unit
def test_on_policy_every_rule_agrees_with_plain_weighting(model, shards):
    names = ("gmc", "tic", "is", "truncated", "token-gmc")
    rows, result = rows_of(model, shards, names)
    assert result.ess_share == pytest.approx(1.0)
    assert result.delay_mean == 0
    for name in names:
        assert rows[name].cosine_is == pytest.approx(1.0, abs=1e-9)
        assert rows[name].norm == pytest.approx(rows["is"].norm, rel=1e-9)
        assert rows[name].weights.q05 == rows[name].weights.q95 == 1
        assert rows[name].weights.kept_share == 1
        assert rows[name].weights.removed_mass == 0
        assert rows[name].weights.ess_share == pytest.approx(1.0)


def literal_gradient(model, stored, weight):
    """Σ weight(log ρ's of the group, i)·A_i·∇log π(y_i)/(B·L_max) by the network's own forward, one response at a time."""
    parameters = list(model.network.parameters())
    total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
    logp = [[_logp(model, row) for row in group] for group in stored.groups]
    for group, scores in zip(stored.groups, logp, strict=True):
        log_rho = [float(score.detach()) - math.fsum(row.trainer_logprobs) for score, row in zip(scores, group, strict=True)]
        rewards = [row.reward for row in group]
        for index, score in enumerate(scores):
            others = [reward for place, reward in enumerate(rewards) if place != index]
            scale = weight(log_rho, index) * (rewards[index] - math.fsum(others) / len(others))
            if scale:
                gradients = torch.autograd.grad(score, parameters, retain_graph=True)
                for sum_, gradient in zip(total, gradients, strict=True):
                    sum_ += scale * gradient.double() / (len(stored.groups) * GROUP_SIZE * MAX_TOKENS)
    return math.sqrt(sum(float((tensor**2).sum()) for tensor in total))


def _logp(model, row):
    ids = torch.tensor([row.prompt_token_ids + row.response_token_ids])
    logits = model.network(ids).logits[0, len(row.prompt_token_ids) - 1 : -1, : model.vocabulary_size]
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(row.response_token_ids)[:, None]).sum()


def gmc_weight(log_rho, index):
    mean = math.fsum(math.exp(value) for value in log_rho) / len(log_rho)
    return math.exp(log_rho[index]) * min(1.0, 1.28 / mean)


@pytest.mark.unit
def test_the_norm_of_a_rules_gradient_equals_a_literal_one(model, shards):
    other = moved(model)
    rows, result = rows_of(other, shards, ("gmc", "is"), policy_version=3)
    assert 0.05 < result.ess_share < 0.99, "the policy must have moved for this test to mean something"
    stored = load_stored(shards, other, shards=8, policy_version=3)
    assert rows["gmc"].norm == pytest.approx(literal_gradient(other, stored, gmc_weight), rel=1e-3)
    assert rows["is"].norm == pytest.approx(literal_gradient(other, stored, lambda logs, i: math.exp(logs[i])), rel=1e-3)
    assert result.delay_mean == 3


@pytest.mark.unit
def test_off_policy_the_rules_differ_and_capping_removes_mass(model, shards):
    rows, _ = rows_of(moved(model, 0.2), shards, policy_version=5)
    assert rows["is"].cosine_is == pytest.approx(1.0)
    assert rows["is"].weights.removed_mass == 0
    for name in ("gmc", "tic", "truncated"):
        assert -1 <= rows[name].cosine_is < 1
        assert rows[name].weights.removed_mass > 0
        assert rows[name].weights.ess_share >= rows["is"].weights.ess_share
    assert rows["tic"].weights.kept_share < 1
    assert rows["truncated"].weights.largest == pytest.approx(1.28, rel=1e-5)
    assert 0 < rows["vcpo"].learning_rate_scale < 1


@pytest.mark.unit
def test_one_normalizer_for_all_is_used_for_all(model, shards):
    rows, _ = rows_of(model, shards, ("gmc", "grpo"), normalizer=Normalizer.TOKEN_MEAN)
    assert {row.normalizer for row in rows.values()} == {"token-mean"}
    assert rows["grpo"].cosine_is == pytest.approx(1.0, abs=1e-6), "on-policy, only the normalizer tells them apart"


@pytest.mark.unit
def test_a_rule_that_lacks_its_anchor_is_named_and_the_others_are_measured(model, shards):
    rows, result = rows_of(moved(model), shards, ("gmc", "decoupled-ppo"), policy_version=4)
    assert list(rows) == ["gmc"]
    assert "v000003" in result.not_measured["decoupled-ppo"]


@pytest.mark.unit
def test_the_order_of_rules_does_not_matter(model, shards):
    names = ("gmc", "gac", "tic")
    forward, _ = rows_of(model, shards, names)
    backward, _ = rows_of(model, shards, names[::-1])
    assert forward == backward


@pytest.mark.process
def test_fresh_rollouts_give_a_gradient_that_stale_ones_point_along(model, shards, monkeypatch):
    class VowelReward:
        def close(self):
            return None

        def score(self, samples):
            return [Score(float(bool(reward_of(sample.text))), "correct") for sample in samples]

    monkeypatch.setattr(comparison.fresh, "Math", VowelReward)
    counted = []
    rows, result = rows_of(model, shards, ("gmc",), fresh=6, advance=counted.append)
    assert sum(counted) == 6 * 2 * PROMPTS * GROUP_SIZE + 1
    assert result.fresh_agreement > 0.2
    assert rows["gmc"].cosine_on_policy > 0.2


def invoke(*arguments):
    return CliRunner().invoke(app, ["estimators", "compare", *map(str, arguments)], env={"COLUMNS": "80", "TERM": "dumb"})


@pytest.fixture(scope="module")
def run(model, shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "rollouts").mkdir()
    for path in shards.glob("*.parquet"):
        (folder / "rollouts" / path.name).write_bytes(path.read_bytes())
    publish_policy(model, folder / "policies", 0, "a-run")
    publish_policy(moved(model), folder / "policies", 1, "a-run")
    return folder


@pytest.mark.unit
def test_the_command_prints_a_table_that_fits_80_columns_and_writes_nothing(run):
    before = sorted(path for path in run.rglob("*"))
    chosen = [word for name in RULES for word in ("--estimator", name)]
    result = invoke(run, "--model", run / "policies" / "v000001", *chosen)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    for name in RULES:
        assert name in result.stdout
    assert "Not measured" not in result.stdout
    assert sorted(path for path in run.rglob("*")) == before


@pytest.mark.unit
def test_the_command_as_json(run):
    result = invoke(run / "rollouts", "--model", run / "policies" / "v000001", "--estimator", "gmc", "--shards", "1", "--json")
    record = json.loads(result.stdout)
    assert record["policy_version"] == 1
    assert len(record["shards"]) == 1
    assert record["responses"] == PROMPTS * GROUP_SIZE
    assert [row["name"] for row in record["rows"]] == ["gmc"]
    assert record["rows"][0]["weights"]["kept_share"] == 1.0


@pytest.mark.unit
def test_the_initial_policy_is_looked_for_beside_the_one_given(model, run, shards):
    rule = build_estimator("grpo", {"kl": 0.1})
    given = load_model(run / "policies" / "v000001")
    stored = load_stored(run, given, shards=8)
    found = Measurer(Scorer(given), stored).batch(rule).reference_logp_BT
    assert torch.equal(found, Scorer(model).score(*token_ids(stored.groups)).logp_BT)
    stored = load_stored(shards, model, shards=8, policy_version=4)
    assert "v000000 is not there" in compare_rules([rule], Scorer(model), stored).not_measured["grpo"]


def not_measured(model, folder, rule):
    return compare_rules([rule], Scorer(model), load_stored(folder, model, shards=8)).not_measured


@pytest.mark.unit
def test_a_rule_that_needs_both_kinds_of_log_probs_is_not_measured_on_one(model, tmp_path):
    class Both(GMC):
        needs = GMC.needs | {Need.ENGINE_LOGP}

    write_rollouts(tmp_path, model, batches=1, kinds=("engine",))
    assert "use --logprobs trainer" in not_measured(model, tmp_path, Both())["gmc"]
    write_rollouts(tmp_path, model, batches=1, first=1, kinds=("trainer",))
    (tmp_path / "b000000-v000000.parquet").unlink()
    assert "has no engine_logprobs" in not_measured(model, tmp_path, Both())["gmc"]


@pytest.mark.unit
def test_a_folder_without_shards_is_named(run, tmp_path):
    result = invoke(tmp_path, "--model", run / "policies" / "v000001")
    assert result.exit_code == 2
    assert "no shards" in result.stderr


@pytest.mark.unit
def test_an_unknown_rule_is_refused_before_the_model_is_loaded(run):
    result = invoke(run, "--model", Path("no/such/model"), "--estimator", "nothing")
    assert result.exit_code == 2
    assert "no estimator is named 'nothing'" in result.stderr


@pytest.mark.unit
def test_rollouts_newer_than_the_policy_are_refused(model, tmp_path):
    write_rollouts(tmp_path, model, version=7, batches=1)
    with pytest.raises(UsageError, match="version 7 are newer"):
        load_stored(tmp_path, model, shards=8, policy_version=3)


@pytest.mark.unit
def test_log_probs_that_are_not_stored_are_refused(model, tmp_path):
    write_rollouts(tmp_path, model, batches=1, kinds=("engine",))
    assert load_stored(tmp_path, model, shards=8).logprob_kind == "engine"
    with pytest.raises(UsageError, match="no trainer log-probs stored"):
        load_stored(tmp_path, model, shards=8, logprobs="trainer")


@pytest.mark.unit
def test_shards_of_two_runs_are_refused(model, tmp_path):
    write_rollouts(tmp_path, model, batches=2)
    write_rollouts(tmp_path, model, batches=1, first=2, run_id="another")
    with pytest.raises(DataError, match="run_id differs"):
        load_stored(tmp_path, model, shards=8)


@pytest.mark.unit
def test_another_tokenizer_is_refused(model, shards):
    other = replace(model, tokenizer=tiny_model().tokenizer)
    other.tokenizer.add_tokens(["xyz"])
    with pytest.raises(DataError, match="tokenizer"):
        load_stored(shards, other, shards=8)
