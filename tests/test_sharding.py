"""Ranks that hold a part of the parameters each train what one process trains, save it, and go on with any number of ranks.

What may differ is rounding: products of packed rows and sums over ranks run in another order. Twenty updates on given rollouts
turn that into weights that lie apart by at most a hundredth of the way that training moved them, and nowhere by more than two
rates a step: AdamW's first steps are the signs of gradients, so a coordinate whose gradient is rounding may go the other way.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from sharding_runs import SHARDED, job, run_jobs
from training_runs import metrics_of, small_settings, train_run

from gmc.models import load_model, weights_hash
from gmc.store.checkpoints import load_checkpoint

pytestmark = [pytest.mark.process, pytest.mark.slow]

UPDATES = 20
BATCHES = {2: ["rollout.prompts=4", "rollout.group_size=4"], 3: ["rollout.prompts=2", "rollout.group_size=6"]}
"""By ranks; with three of them there are more ranks than prompts, and parts of groups are dealt out."""

RULES = {
    "gmc": ["estimator=gmc"],
    "gac": ["estimator.name=gac", "estimator.base=gmc"],
    "grpo": ["estimator=grpo"],
    "vcpo": ["estimator=vcpo"],
    "a3po": ["estimator=a3po"],
    "decoupled-ppo": ["estimator=decoupled-ppo"],
}
COVER = {
    "gmc": (2, "checkpointing=false", "share_prompts=true"),
    "gac": (2, "checkpointing=true", "share_prompts=false"),
    "a3po": (2, "checkpointing=false", "share_prompts=false"),
    "grpo": (3, "checkpointing=true", "share_prompts=true"),
    "vcpo": (3, "checkpointing=false", "share_prompts=true"),
    "decoupled-ppo": (3, "checkpointing=true", "share_prompts=false"),
}
"""Every pair of ranks, checkpointing and shared prompts; all combinations are in `python -m tests.full sharding`."""


def assignments(rule: str, ranks: int, checkpointing: str, sharing: str) -> list[str]:
    """A run on given rollouts in micro-batches so small that ranks have unequal numbers of them."""
    fixed = ["delay=shards", f"train.updates={UPDATES}", "rollout.max_tokens=12", "train.tokens_per_micro_batch=60"]
    return [*BATCHES[ranks], *fixed, *RULES[rule], f"train.activation_{checkpointing}", f"train.{sharing}"]


def make_rollouts(folder: Path) -> dict[int, Path]:
    """Batches of version 0 for every number of ranks, made by one process that trains a little besides."""
    for ranks, size in BATCHES.items():
        fixed = [f"delay={UPDATES}", f"train.updates={UPDATES}", "rollout.max_tokens=12"]
        train_run(folder / f"rollouts-{ranks}", small_settings(*size, *fixed))
    return {ranks: folder / f"rollouts-{ranks}" for ranks in BATCHES}


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Of the newest policy."""
    return load_model(sorted((run / "policies").glob("v*"))[-1]).weights()


def require_equal(alone: Path, sharded: Path) -> None:
    """The same metrics and weights, up to what rounding does."""
    rates = 0.0
    for one, other in zip(metrics_of(alone), metrics_of(sharded), strict=True):
        rates += one["optimizer/learning_rate"] * one["optimizer/learning_rate_scale"]
        assert other == pytest.approx(one, abs=1e-4, rel=5e-3)
    start, one, other = load_model("embedded").weights(), weights(alone), weights(sharded)
    apart = sum((one[name] - other[name]).double().square().sum() for name in start).sqrt()
    moved = sum((one[name] - start[name]).double().square().sum() for name in start).sqrt()
    assert apart < 0.01 * moved
    assert max((one[name] - other[name]).abs().max() for name in start) < 2 * rates


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return make_rollouts(tmp_path_factory.mktemp("rollouts"))


@pytest.fixture(scope="module")
def sharded(rollouts, tmp_path_factory):
    """Every run of the cover, on ranks, by rule."""
    folder = tmp_path_factory.mktemp("sharded")
    for ranks in BATCHES:
        own = {rule: case for rule, case in COVER.items() if case[0] == ranks}
        jobs = [job(folder / rule, *assignments(rule, *case), SHARDED, rollouts=rollouts[ranks]) for rule, case in own.items()]
        run_jobs(ranks, *jobs)
    return folder


@pytest.mark.parametrize("rule", COVER)
def test_ranks_with_parts_train_what_one_process_trains(rule, rollouts, sharded, tmp_path):
    case = COVER[rule]
    train_run(tmp_path / "alone", small_settings(*assignments(rule, *case)), rollouts_from=rollouts[case[0]])
    require_equal(tmp_path / "alone", sharded / rule)


def test_what_ranks_publish_is_a_folder_like_any_other(sharded, rollouts, tmp_path):
    (policy,) = (sharded / "gmc" / "policies").glob("v*")
    files = sorted(path.name for path in policy.glob("model*"))
    assert files == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    model = load_model(policy)
    assert weights_hash(model.weights()) == json.loads((policy / "gmc.json").read_text())["weights_hash"]
    (alone,) = (rollouts[2] / "policies").glob("v*")
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (alone, policy))
    assert ours == theirs


def test_any_number_of_ranks_goes_on_from_what_others_saved(rollouts, sharded, tmp_path):
    """gac keeps a gradient, and decoupled-ppo the weights of other versions: both are cut anew, and put together for one."""
    for rule, first, then in (("gac", 2, 3), ("decoupled-ppo", 3, 2)):
        case = (COVER[rule][0], *COVER[rule][1:])
        base = [*assignments(rule, *case), "optimizer.schedule=constant"]
        half, source = [*base, f"train.updates={UPDATES // 2}"], rollouts[case[0]]
        paths = {name: tmp_path / f"{rule}-{name}" for name in ("alone", "parts", "others", "one", "whole")}
        train_run(paths["alone"], small_settings(*base), rollouts_from=source)
        run_jobs(first, job(paths["parts"], *half, SHARDED, rollouts=source))
        (saved,) = (paths["parts"] / "checkpoints").glob("u*")
        assert load_checkpoint(saved).shared == saved / "shared"
        shutil.copytree(paths["parts"], paths["one"])
        shutil.copytree(paths["parts"], paths["others"])
        train_run(paths["whole"], small_settings(*half), rollouts_from=source)
        run_jobs(then, *(job(paths[name], *base, SHARDED, resume=True) for name in ("others", "whole")))
        train_run(paths["one"], small_settings(*base), resume=True)
        for name in ("others", "one", "whole"):
            require_equal(paths["alone"], paths[name])


def test_the_same_ranks_go_on_bit_for_bit(rollouts, tmp_path):
    base = [*assignments("gac", *COVER["gac"]), "optimizer.schedule=constant"]
    parts, through = tmp_path / "parts", tmp_path / "through"
    half = [*base, f"train.updates={UPDATES // 2}"]
    run_jobs(
        2,
        job(through, *base, SHARDED, rollouts=rollouts[2]),
        job(parts, *half, SHARDED, rollouts=rollouts[2]),
        job(parts, *base, SHARDED, resume=True),
    )
    assert metrics_of(parts) == metrics_of(through)
    assert weights(parts).keys() == weights(through).keys()
    assert all(torch.equal(tensor, weights(through)[name]) for name, tensor in weights(parts).items())
