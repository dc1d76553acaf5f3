"""The embedded model learns within a few dozen updates, and stale training runs."""

import pytest
from training_runs import metrics_of, train_run

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.grading import grade_many
from gmc.models import load_model
from gmc.problems.arithmetic import arithmetic_problems
from gmc.problems.templates import get_template
from gmc.resolving.resolve import resolve_settings
from gmc.store.policies import newest_policy

PROBLEMS, SAMPLES = 150, 4


def accuracy(source) -> float:
    """Sampled accuracy on problems that training never sees."""
    model, template = load_model(source), get_template("arithmetic-v1")
    problems = arithmetic_problems("eval", PROBLEMS)
    prompts = [template.encode(template.render(problem.question, model.tokenizer), model.tokenizer) for problem in problems]
    groups = TransformersEngine(model).generate(
        prompts, group_size=SAMPLES, sampling=Sampling(max_tokens=64), seeds=range(PROBLEMS)
    )
    pairs = [
        (problem.answer, model.tokenizer.decode(completion.token_ids, skip_special_tokens=True))
        for problem, group in zip(problems, groups, strict=True)
        for completion in group
    ]
    return sum(verdict.correct for verdict in grade_many(pairs)) / len(pairs)


@pytest.mark.process
@pytest.mark.slow
def test_on_policy_gmc_gains_at_least_30_points(tmp_path):
    path = tmp_path / "run"
    flags = {"delay": "0", "train.updates": 60, "optimizer.learning_rate": 4e-4, "optimizer.schedule": "constant"}
    train_run(path, resolve_settings(flags=flags))
    assert accuracy(newest_policy(path / "policies")) - accuracy("embedded") >= 0.30


@pytest.mark.train
@pytest.mark.parametrize("rule", ["grpo", "gmc"])
def test_stale_training_runs(tmp_path, rule):
    path = tmp_path / "run"
    flags = {"estimator.name": rule, "delay": "64", "train.updates": 4, "rollout.prompts": 2, "rollout.max_tokens": 16}
    train_run(path, resolve_settings(flags=flags))
    assert [record["delay/mean"] for record in metrics_of(path)] == [0, 1, 2, 3]  # version 0 fills the queue first
