"""Settings that a run keeps: what is saved, and what a later command makes of it, whatever the code's defaults become."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.config.normalizer import Normalizer
from gmc.config.settings import RunSettings, TrainSettings, settings_tree
from gmc.errors import DataError, UsageError
from gmc.estimators.epsilon import EpsilonSettings
from gmc.estimators.gmc import GMC
from gmc.resolving.earlier import earlier_settings
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

ASSIGNMENTS = {
    "seed": [3, 7],
    "delay": [0, "length:28"],
    "model.source": ["embedded", "some/model"],
    "model.compute_dtype": ["auto", "bfloat16"],
    "problems.source": ["arithmetic", "mine.jsonl"],
    "rollout.max_tokens": [9, "auto"],
    "estimator": ["gmc", "gac", "tic"],
    "estimator.base": ["gmc", "grpo"],
    "train.normalizer": ["token-mean", "auto"],
    "eval.samples": [2, "auto"],
    "eval.benchmarks": [["aime24"], ["paper-six"]],
}


def saved_run(path: Path, settings: RunSettings) -> RunDirectory:
    """A run that holds what `gmc train` saves before anything else, and a result."""
    run = RunDirectory.create(path, model="embedded", seed=0)
    run.save_settings("train", settings)
    run.checkpoints.mkdir()
    (run.checkpoints / "u000001").mkdir()
    return run


def resumed(path: Path, **layers: Any) -> RunSettings:
    return resolve_settings(earlier=earlier_settings(path, resume=True, overwrite=False), **layers)


def test_what_was_chosen_for_another_model_problem_or_rule_is_chosen_again(tmp_path):
    saved_run(tmp_path, resolve_settings())
    assert resumed(tmp_path, flags={"problems.source": "mine.jsonl"}).problems.template == "arithmetic-v1"
    saved_run(tmp_path / "theirs", resolve_settings(assignments=["model.source=some/model"]))
    assert resumed(tmp_path / "theirs", flags={"problems.source": "mine.jsonl"}).problems.template == "math-two-shot-v1"
    assert resumed(tmp_path, flags={"model.source": "some/model"}).rollout.max_tokens == 4096
    assert resumed(tmp_path, flags={"estimator.name": "grpo"}).train.normalizer == "seq-mean-token-mean"
    assert resumed(tmp_path, assignments=['eval.benchmarks=["aime24"]']).eval.samples == {"aime24": 64, "others": 4}
    saved_run(tmp_path / "said", resolve_settings(assignments=["rollout.max_tokens=7", "problems.template=chat-v1"]))
    again = resumed(tmp_path / "said", flags={"model.source": "some/model", "problems.source": "mine.jsonl"})
    assert (again.rollout.max_tokens, again.problems.template) == (7, "chat-v1")


def test_a_resumed_run_keeps_defaults_that_the_code_has_changed(tmp_path, monkeypatch):
    before = resolve_settings()
    saved_run(tmp_path, before)

    class Changed(EpsilonSettings):
        epsilon: float = Field(0.5, description="another default")
        extra: int = Field(3, description="a setting that the run's version did not have")

    monkeypatch.setattr(TrainSettings.model_fields["checkpoint_every"], "default", 7)
    monkeypatch.setattr(GMC, "Settings", Changed)
    monkeypatch.setattr(GMC, "normalizer", Normalizer.TOKEN_MEAN)
    monkeypatch.setattr("gmc.resolving.resolve.default_template", lambda source, model: "chat-v1")
    fresh, again = resolve_settings(), resumed(tmp_path)
    assert (fresh.train.checkpoint_every, fresh.estimator["epsilon"], fresh.problems.template) == (7, 0.5, "chat-v1")
    assert fresh.train.normalizer == "token-mean"
    kept = {key: value for key, value in again.estimator.items() if key != "extra"}
    assert kept == before.estimator
    assert settings_tree(again) | {"estimator": kept} == settings_tree(before)
    printed = CliRunner().invoke(app, ["train", "--resume", "--dry-run", "--run", str(tmp_path)]).stdout
    assert "checkpoint_every = 50                   # run: default\n" in printed
    assert tomllib.loads(printed)["estimator"]["epsilon"] == 0.28


@given(st.lists(st.sampled_from([(key, value) for key, values in ASSIGNMENTS.items() for value in values]), max_size=8))
def test_a_saved_run_resolves_to_itself(tmp_path_factory, chosen):
    layers = [f"{key}={tomli_w.dumps({'v': value}).partition('= ')[2].strip()}".replace("\n", "") for key, value in chosen]
    wraps = [value for key, value in chosen if key == "estimator"][-1:] == ["gac"]
    settings = resolve_settings(assignments=[text for text in layers if wraps or not text.startswith("estimator.base")])
    path = tmp_path_factory.mktemp("run")
    saved_run(path, settings)
    again = resumed(path)
    assert (again, again.hash) == (settings.with_origins(again.origins), settings.hash)
    assert {key: origin.removeprefix("run: ") for key, origin in again.origins.items()} == settings.origins


def test_device_and_dtype_are_kept_on_resume_and_chosen_again_by_other_commands(tmp_path, monkeypatch):
    saved_run(tmp_path, resolve_settings())
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("gmc.resolving.memory.gpu_bytes", lambda: 80 * 2**30)
    model = resumed(tmp_path).model
    assert (model.device, model.compute_dtype) == ("cpu", "float32")
    model = resumed(tmp_path, assignments=["model.device=auto"]).model
    assert model.device == "cuda"
    other = resolve_settings(earlier=earlier_settings(tmp_path, resume=False, overwrite=False)).model
    assert (other.device, other.compute_dtype) == ("cuda", "bfloat16")


@pytest.mark.parametrize("newest", ["train", "rollout"])
def test_of_two_hashes_of_a_file_the_one_saved_last_counts(tmp_path, newest):
    (tmp_path / "f.py").write_text("def f(completions, **rest):\n    return [0.0 for _ in completions]\n")
    reward = f"reward.parts=['{tmp_path / 'f.py'}:f']"
    run, hashes = saved_run(tmp_path / "run", resolve_settings(assignments=[reward])), {}
    for time, command in enumerate(["rollout", "train"] if newest == "train" else ["train", "rollout"]):
        with (tmp_path / "f.py").open("a") as file:
            file.write(f"# as {command} has it\n")
        settings = resolve_settings(assignments=[reward])
        run.save_settings(command, settings)
        os.utime(run.settings(command), (time, time))
        hashes[command] = settings.reward.code
    assert hashes["train"] != hashes["rollout"]
    earlier = earlier_settings(run.path, resume=False, overwrite=False)
    assert tuple(earlier.values["reward.code"]) == tuple(hashes[newest])
    assert tuple(resolve_settings(earlier=earlier).reward.code) == tuple(hashes[newest])


def test_hashes_that_training_saved_of_other_files_are_not_taken(tmp_path):
    (tmp_path / "f.py").write_text("def f(completions, **rest):\n    return [0.0 for _ in completions]\n")
    run = saved_run(tmp_path / "run", resolve_settings())
    rolled = resolve_settings(assignments=[f"reward.parts=['{tmp_path / 'f.py'}:f']"])
    run.save_settings("rollout", rolled)
    os.utime(run.settings("rollout"), (0, 0))
    assert resolve_settings(earlier=earlier_settings(run.path, resume=False, overwrite=False)).reward.code == rolled.reward.code


@pytest.mark.parametrize("damage", ["settings", "origins", "type"])
def test_saved_settings_are_read_strictly(tmp_path, damage):
    run = saved_run(tmp_path, resolve_settings())
    content = tomllib.loads(run.settings("train").read_text())
    if damage == "settings":
        del content["settings"]["train"]["updates"]
    elif damage == "origins":
        del content["origins"]["train.updates"]
    else:
        content["origins"]["train.updates"] = 3
    run.settings("train").write_text(tomli_w.dumps(content))
    with pytest.raises(DataError, match=r"train\.toml: damaged .*train\.updates"):
        resumed(tmp_path)


def test_a_run_of_the_first_version_can_be_read_and_not_resumed(tmp_path):
    run = saved_run(tmp_path, resolve_settings())
    old = {
        "seed": 5,
        "delay": "live",
        "model": {"source": "embedded", "device": "auto", "compute_dtype": "auto"},
        "rollout": {"prompts": 3, "max_tokens": 64},
        "estimator": {"name": "tic"},
        "train": {"updates": 9},
    }
    run.settings("train").write_text(tomli_w.dumps({"settings": old, "versions": {"gmc": "0.1.0"}}))
    settings = resolve_settings(earlier=earlier_settings(tmp_path, resume=False, overwrite=False))
    assert (settings.seed, settings.rollout.prompts, settings.model.device) == (5, 3, "cpu")
    with pytest.raises(UsageError, match=r"train\.toml: gmc 0\.1 saved it.*start another --run"):
        resumed(tmp_path)
    assert '"planned_updates": 9' in CliRunner().invoke(app, ["status", "--json", "--run", str(tmp_path)]).stdout


def test_a_rules_setting_that_is_none_survives_saving(tmp_path, monkeypatch):
    class Limited(EpsilonSettings):
        limit: int | None = Field(None, description="none: no limit")

    monkeypatch.setattr(GMC, "Settings", Limited)
    saved_run(tmp_path, resolve_settings())
    monkeypatch.setattr(Limited.model_fields["limit"], "default", 5)
    Limited.model_rebuild(force=True)
    assert resolve_settings().estimator["limit"] == 5
    assert resumed(tmp_path).estimator["limit"] is None


@pytest.mark.parametrize("command", ["train", "rollout"])
def test_a_command_that_was_killed_before_it_saved_its_settings_is_not_gone_on_with(command, tmp_path):
    """Its flags are known to nobody: other settings must not be taken for them."""
    RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    result = CliRunner().invoke(app, [command, "--run", str(tmp_path / "run"), "--resume"])
    assert result.exit_code == 2
    assert f"gmc {command} was stopped there before it saved its settings" in result.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    again = CliRunner().invoke(app, [command, "--run", str(tmp_path / "run"), "--auto-resume", "--dry-run"])
    assert again.exit_code == 0, again.stderr


def test_a_trained_run_without_its_settings_is_not_gone_on_with(tmp_path):
    saved_run(tmp_path, resolve_settings())
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / "settings" / "train.toml").unlink()
    result = CliRunner().invoke(app, ["train", "--run", str(tmp_path), "--resume"])
    assert result.exit_code == 2
    assert "train.toml: missing, and --resume needs what it says" in result.stderr
