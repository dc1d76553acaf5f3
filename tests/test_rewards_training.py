"""Rewards through the commands: rollouts, training, a resume, evaluation and arms, with rewards that may be any number."""

import json
import math
import os
import shutil
import signal

import numpy as np
import pytest
from training_runs import metrics_of, weights_of
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.training_view import TrainingView
from gmc.errors import UsageError
from gmc.evaluation.arms import group_by_arm, read_trained_run
from gmc.evaluation.arms_report import arm_tables
from gmc.resolving.earlier import earlier_settings
from gmc.resolving.resolve import resolve_settings
from gmc.store.files import read_jsonl
from gmc.store.shards.reader import read_shard

pytestmark = pytest.mark.process

CODE = """
def short(completions, trainer_state, log_metric, **columns):
    log_metric("version", trainer_state.global_step)
    return [1 / (3 + len(set(text))) for text in completions]
"""
SMALL = ("--prompts", "2", "--group-size", "2", "--max-tokens", "12")
runner = CliRunner()


def gmc(*arguments):
    outcome = runner.invoke(app, list(map(str, arguments)), catch_exceptions=False)
    return outcome


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "rewards.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    """A run of four updates without a stop; beside it `resumed`, which SIGTERM stops after two and which then goes on."""
    folder = tmp_path_factory.mktemp("runs")
    spec = ("--reward", "math", "--reward", f"{file}:short=0.2", "--set", "train.checkpoint_every=2")
    train = ("--delay", 1, "--updates", 4, *spec[4:], "--estimator", "grpo", "--set", "optimizer.learning_rate=1e-3")
    for name in ("whole", "resumed"):
        assert gmc("rollout", "--run", folder / name, *SMALL, *spec[:4], "--batches", 2).exit_code == 0
    assert gmc("train", "--run", folder / "whole", *train).exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingView, "updated", stop_after_two)
        assert gmc("train", "--run", folder / "resumed", *train).exit_code == 1
    assert len(metrics_of(folder / "resumed")) == 2
    assert gmc("train", "--run", folder / "resumed", "--resume").exit_code == 0
    return folder / "whole"


def stop_after_two(self, update, metrics):
    if update == 1:
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_sum_trains_and_the_parts_are_kept(run):
    shard = read_shard(next(iter(sorted((run / "rollouts").glob("*.parquet")))))
    assert shard.metadata.reward_parts == ("math", "short")
    assert shard.metadata.rewards[0] == "math(strict=True)"
    assert shard.metadata.rewards[1].endswith("rewards.py:short=0.2")
    for row in shard.rollouts:
        correct, short = row.reward_parts
        assert correct == float(row.status == "correct")
        assert short == float(np.float32(1 / (3 + len(set(row.response)))))
        assert row.reward == pytest.approx(correct + 0.2 * short, abs=1e-7)
        assert row.reward == float(np.float32(row.reward))
    logged = read_jsonl(run / "metrics.jsonl")
    rows = shard.rollouts
    assert logged[0]["reward/mean"] == pytest.approx(math.fsum(row.reward for row in rows) / len(rows), abs=1e-12)
    assert logged[0]["reward/parts/short"] == pytest.approx(math.fsum(row.reward_parts[1] for row in rows) / len(rows))
    # Batches 0 and 1 lay there; update 1 launches batch 2 as version 1.
    assert [one.get("reward/log/short/version") for one in logged[:3]] == [None, 1.0, 2.0]


def test_a_run_that_was_stopped_and_resumed_is_the_run_without_a_stop(run):
    resumed = run.parent / "resumed"
    assert metrics_of(resumed) == metrics_of(run)
    assert weights_of(resumed) == weights_of(run)
    assert max(one["optimizer/gradient_norm"] for one in metrics_of(run)) > 0


def test_another_reward_or_changed_code_is_refused_on_the_same_run(run, file):
    other = gmc("train", "--run", run, "--resume", "--updates", 5, "--reward", "math")
    assert other.exit_code == 2
    assert "rewarded by math(strict=True) + " in other.output.replace("\n", "")
    try:
        file.write_text(CODE + "# changed\n")
        with pytest.raises(UsageError, match=r"rewards\.py: changed since the run began.*--set reward\.code=auto"):
            resolve_settings(earlier=earlier_settings(run, resume=True, overwrite=False))
        resolve_settings(earlier=earlier_settings(run, resume=True, overwrite=False), assignments=["reward.code=auto"])
    finally:
        file.write_text(CODE)


def test_a_change_that_training_accepted_needs_no_word_afterwards(run, file, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    asked = ("eval", "--run", tmp_path / "run", "--n", 1, "--limit", 2, "--max-tokens", 12)
    try:
        file.write_text(CODE + "# changed\n")
        assert gmc(*asked).exit_code == 2
        assert gmc("train", "--run", tmp_path / "run", "--resume", "--updates", 5, "--set", "reward.code=auto").exit_code == 0
        assert gmc(*asked).exit_code == 0
        file.write_text(CODE + "# changed again\n")
        refused = gmc(*asked)
        assert refused.exit_code == 2
        assert "changed since the run began" in " ".join(refused.stderr.split())
    finally:
        file.write_text(CODE)


def test_evaluation_scores_the_sum_and_every_part(run):
    asked = ("eval", "--run", run, "--n", 3, "--limit", 6, "--max-tokens", 12, "--json")
    outcome = gmc(*asked)
    assert outcome.exit_code == 0
    (result,) = json.loads(outcome.stdout)["results"]
    assert set(result["scores"]) == {"avg@3", "avg@3 math", "avg@3 short", "greedy", "greedy math", "greedy short"}
    values = {name: score["value"] for name, score in result["scores"].items()}
    assert values["avg@3"] == pytest.approx(values["avg@3 math"] + 0.2 * values["avg@3 short"], abs=1e-6)
    assert "mean reward (math + short)" in outcome.stderr
    refused = gmc(*asked, "--pass-k", 2)
    assert refused.exit_code == 2
    assert "math + short may be any number (binary is false)" in " ".join(refused.stderr.split())
    alone = gmc(*asked, "--pass-k", 2, "--reward", "math")
    assert alone.exit_code == 0
    assert set(json.loads(alone.stdout)["results"][0]["scores"]) == {"avg@3", "pass@2", "maj@3", "greedy"}
    (arm,) = group_by_arm([read_trained_run(run)])
    titles = [str(table.title) for table in arm_tables([arm])]
    assert titles[0].startswith("training reward:")  # and no percent
    assert any("mean reward" in title for title in titles[1:])
    assert any("% correct" in title for title in titles[1:])


def test_a_function_that_fails_loses_nothing_and_the_run_goes_on(tmp_path):
    file = tmp_path / "flaky.py"
    file.write_text(
        "def f(completions, trainer_state, **rest):\n    assert trainer_state.global_step < 2, 'no more'\n"
        "    return [float(len(text)) for text in completions]\n"
    )
    spec = (*SMALL, "--reward", f"{file}:f", "--delay", 0, "--updates", 3)
    broken = gmc("train", "--run", tmp_path / "run", *spec, "--set", "train.checkpoint_every=1")
    assert broken.exit_code == 1
    said = " ".join(broken.stderr.split())
    assert "flaky.py:f: AssertionError: no more (flaky.py, line 2) (on problem arithmetic-train-" in said
    assert "Repair it and go on with --resume --set reward.code=auto" in said
    file.write_text(file.read_text().replace("< 2", "< 9"))
    assert gmc("train", "--run", tmp_path / "run", "--resume").exit_code == 2  # it is another function now
    assert gmc("train", "--run", tmp_path / "run", "--resume", "--set", "reward.code=auto").exit_code == 0
    assert [one["update"] for one in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]


def test_columns_of_the_data_file_reach_the_function_and_no_answer_is_needed(tmp_path):
    (tmp_path / "p.jsonl").write_text(
        "".join(json.dumps({"prompt": f"Say {n}", "level": n, "tags": ["a", {"b": n}]}) + "\n" for n in range(4))
    )
    (tmp_path / "r.py").write_text(
        "def f(prompts, completions, level, tags, **rest):\n"
        "    assert set(rest) == {'question', 'answer', 'completion_ids', 'trainer_state', 'log_extra', 'log_metric'}\n"
        "    assert all(type(n) is int and t == ['a', {'b': n}] for n, t in zip(level, tags))\n"
        "    return [n / 8 for n in level]\n"
    )
    done = gmc("rollout", "--run", tmp_path / "run", *SMALL, "--problems", tmp_path / "p.jsonl", "--batches", 2,
               "--reward", f"{tmp_path}/r.py:f", "--set", "problems.template=arithmetic-v1", "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["mean_reward"] == (0 + 1 + 2 + 3) / 4 / 8
    assert json.loads(done.stdout)["accuracy"] is None
    refused = gmc("rollout", "--run", tmp_path / "other", "--problems", tmp_path / "p.jsonl", *SMALL)
    assert refused.exit_code == 1
    assert "no answer field" in refused.stderr
