"""Ranks that hold a part of the parameters each train what one process trains, save it, and go on with any number of ranks.

What may differ is rounding: products of packed rows and sums over ranks run in another order. Twenty updates on given rollouts,
at least twelve of them with a gradient, turn that into weights that lie apart by less than a thousandth of the way they
have moved, and nowhere by more than a tenth of a rate a step. Measured: 0.000015 and 0.0007 at most.
"""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from forked_ranks import ForkedRanks
from kept_batch import kept_batch
from kill_moments import DIGIT_REWARD, require_movement
from safetensors.torch import load_file
from sharding_runs import SHARDED, job
from training_runs import metrics_of, small_settings, train_run

from gmc.models import load_model, weights_hash
from gmc.store.checkpoints import load_checkpoint

pytestmark = [pytest.mark.process, pytest.mark.slow]

UPDATES = 20
EVERY_RUN = [f"train.updates={UPDATES}", "rollout.max_tokens=12", DIGIT_REWARD]
"""Rewards differ within most groups, where arithmetic would give nearly all of so few tokens the same."""

BATCHES = {2: ["rollout.prompts=4", "rollout.group_size=4"], 3: ["rollout.prompts=2", "rollout.group_size=6"]}
"""With the batches of each; with three of them there are more ranks than prompts, and parts of groups are dealt out."""

RULES = {
    "gmc": ["estimator=gmc"],
    "gac": ["estimator.name=gac", "estimator.base=gmc"],
    "grpo": ["estimator=grpo"],
    "vcpo": ["estimator=vcpo"],
    "a3po": ["estimator=a3po"],
    "decoupled-ppo": ["estimator=decoupled-ppo"],
}
COVER = {
    ("gmc", 2): ("checkpointing=false", "share_prompts=true"),
    ("gmc", 3): ("checkpointing=true", "share_prompts=false"),
    ("gac", 2): ("checkpointing=true", "share_prompts=false"),
    ("gac", 3): ("checkpointing=false", "share_prompts=true"),
    ("grpo", 2): ("checkpointing=false", "share_prompts=false"),
    ("grpo", 3): ("checkpointing=true", "share_prompts=true"),
    ("vcpo", 2): ("checkpointing=true", "share_prompts=false"),
    ("vcpo", 3): ("checkpointing=false", "share_prompts=true"),
    ("a3po", 2): ("checkpointing=false", "share_prompts=false"),
    ("a3po", 3): ("checkpointing=true", "share_prompts=true"),
    ("decoupled-ppo", 2): ("checkpointing=false", "share_prompts=true"),
    ("decoupled-ppo", 3): ("checkpointing=true", "share_prompts=false"),
}
"""Every rule on two ranks and, with both other settings the other way round, on three; all combinations of the four are in
`python -m tests.full sharding`."""

THREE_UPDATES = ["train.updates=3", "optimizer.epsilon=1e-3"]
"""So large an epsilon keeps AdamW's first steps from being the signs of gradients that are rounding."""

CLIP = 0.05
"""Shorter than a third to three quarters of the gradients here, so that clipping is part of what is compared."""


def assignments(rule: str, ranks: int, checkpointing: str, sharing: str) -> list[str]:
    """A run on given rollouts in micro-batches so small that ranks have unequal numbers of them."""
    fixed = ["delay=shards", *EVERY_RUN, "train.tokens_per_micro_batch=110", f"optimizer.clip_norm={CLIP}"]
    return [*BATCHES[ranks], *fixed, *RULES[rule], f"train.activation_{checkpointing}", f"train.{sharing}"]


def make_rollouts(folder: Path) -> dict[int, Path]:
    """Batches of version 0 for every number of ranks, made by one process that trains a little besides."""
    for ranks, size in BATCHES.items():
        train_run(folder / f"rollouts-{ranks}", small_settings(*size, *EVERY_RUN, f"delay={UPDATES}"))
    return {ranks: folder / f"rollouts-{ranks}" for ranks in BATCHES}


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Of the newest policy."""
    return load_model(sorted((run / "policies").glob("v*"))[-1]).weights()


def require_equal(alone: Path, sharded: Path, *, apart: float = 1e-3, farthest: float = 0.1) -> None:
    """The same metrics and weights, up to what rounding does.

    apart: how far the weights may lie apart, as a share of the way that training moved them; farthest: any one of them, in sums
    of the learning rates. Where few updates have a gradient, AdamW's first steps are the signs of roundings: allow for 2.
    """
    rates = 0.0
    for one, other in zip(metrics_of(alone), metrics_of(sharded), strict=True):
        rates += one["optimizer/learning_rate"] * one["optimizer/learning_rate_scale"]
        if (
            abs(one["ratio/log_per_token_mean"]) < 1e-6
        ):  # before the first gradient ratios are rounding, and so is what they go with
            one, other = ({**each, "ratio/length_correlation": 0.0} for each in (one, other))
        assert other == pytest.approx(one, abs=1e-4, rel=5e-3)
    start, one, other = load_model("embedded").weights(), weights(alone), weights(sharded)
    distance = sum((one[name] - other[name]).double().square().sum() for name in start).sqrt()
    moved = sum((one[name] - start[name]).double().square().sum() for name in start).sqrt()
    assert distance < apart * moved
    assert max((one[name] - other[name]).abs().max() for name in start) < farthest * rates


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return make_rollouts(tmp_path_factory.mktemp("rollouts"))


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    """Ranks that need not import anything. Under torchrun: test_sharding_live.py, `python -m tests.full sharding`."""
    forks = ForkedRanks()
    yield partial(forks.finish, folder=tmp_path_factory.mktemp("ranks"))
    forks.close()


@pytest.fixture(scope="module")
def sharded(rollouts, forks, tmp_path_factory):
    """Every run of the cover, on ranks, as RULE-RANKS, and the third batch of gmc's as `gmc-RANKS-three.safetensors`."""
    folder = tmp_path_factory.mktemp("sharded")
    for ranks, source in rollouts.items():
        own = {f"{rule}-{ranks}": assignments(rule, ranks, *COVER[rule, ranks]) for rule in RULES}
        jobs = [job(folder / name, *case, SHARDED, rollouts=source) for name, case in own.items()]
        third = {"rollouts": source, "batch": folder / f"gmc-{ranks}-three.safetensors"}
        forks(ranks, *jobs, job(folder / f"gmc-{ranks}-three", *own[f"gmc-{ranks}"], *THREE_UPDATES, SHARDED, **third))
    return folder


@pytest.mark.parametrize(("rule", "ranks"), COVER)
def test_ranks_with_parts_train_what_one_process_trains(rule, ranks, rollouts, sharded, tmp_path):
    case = assignments(rule, ranks, *COVER[rule, ranks])
    train_run(tmp_path / "alone", small_settings(*case), rollouts_from=rollouts[ranks])
    require_movement(tmp_path / "alone", updates=12, last=UPDATES // 2)
    assert sum(record["optimizer/gradient_norm"] > CLIP for record in metrics_of(tmp_path / "alone")) >= 5
    require_equal(tmp_path / "alone", sharded / f"{rule}-{ranks}")


@pytest.mark.parametrize("ranks", BATCHES)
def test_log_probs_and_gradients_of_the_third_batch_are_those_of_one_process(ranks, rollouts, sharded, tmp_path):
    case = [*assignments("gmc", ranks, *COVER["gmc", ranks]), *THREE_UPDATES]
    with kept_batch(tmp_path / "alone.safetensors"):
        train_run(tmp_path / "alone", small_settings(*case), rollouts_from=rollouts[ranks])
    one, other = load_file(tmp_path / "alone.safetensors"), load_file(sharded / f"gmc-{ranks}-three.safetensors")
    assert one.keys() == other.keys()
    assert one["norm"] > CLIP
    assert (one["logp_BT"] < 0).sum() > 100
    torch.testing.assert_close(other["logp_BT"], one["logp_BT"], atol=1e-5, rtol=0)
    for name, start in load_model("embedded").weights().items():
        assert not torch.equal(one[f"full {name}"], start), name
        torch.testing.assert_close(other[f"full {name}"], one[f"full {name}"], atol=1e-5, rtol=0)
        for gradient, norm in (("summed", one["norm"]), ("clipped", CLIP)):
            apart = other[f"{gradient} {name}"] - one[f"{gradient} {name}"]
            assert apart.norm() < 1e-5 * norm, (gradient, name)


def test_what_ranks_publish_is_a_folder_like_any_other(sharded, rollouts):
    (policy,) = (sharded / "gmc-2" / "policies").glob("v*")
    files = sorted(path.name for path in policy.glob("model*"))
    assert files == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    model = load_model(policy)
    assert weights_hash(model.weights()) == json.loads((policy / "gmc.json").read_text())["weights_hash"]
    (alone,) = (rollouts[2] / "policies").glob("v*")
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (alone, policy))
    assert ours == theirs


@pytest.mark.parametrize(("rule", "first", "then"), [("gac", 2, 3), ("decoupled-ppo", 3, 2)])
def test_any_number_of_ranks_goes_on_from_what_others_saved(rule, first, then, rollouts, forks, tmp_path):
    """gac keeps a gradient, and decoupled-ppo the weights of other versions: both are cut anew, and put together for one."""
    base = [*assignments(rule, first, *COVER[rule, first]), "optimizer.schedule=constant"]
    half, source = [*base, f"train.updates={UPDATES // 2}"], rollouts[first]
    paths = {name: tmp_path / name for name in ("alone", "parts", "others", "one", "whole")}
    train_run(paths["alone"], small_settings(*base), rollouts_from=source)
    require_movement(paths["alone"], updates=12, last=UPDATES // 2)
    forks(first, job(paths["parts"], *half, SHARDED, rollouts=source))
    (saved,) = (paths["parts"] / "checkpoints").glob("u*")
    assert load_checkpoint(saved).shared == saved / "shared"
    shutil.copytree(paths["parts"], paths["one"])
    shutil.copytree(paths["parts"], paths["others"])
    train_run(paths["whole"], small_settings(*half), rollouts_from=source)
    forks(then, *(job(paths[name], *base, SHARDED, resume=True) for name in ("others", "whole")))
    train_run(paths["one"], small_settings(*base), resume=True)
    for name in ("others", "one", "whole"):
        require_equal(paths["alone"], paths[name])


def test_the_same_ranks_go_on_bit_for_bit(rollouts, forks, tmp_path):
    base = [*assignments("gac", 2, *COVER["gac", 2]), "optimizer.schedule=constant"]
    parts, through = tmp_path / "parts", tmp_path / "through"
    half = [*base, f"train.updates={UPDATES // 2}"]
    forks(
        2,
        job(through, *base, SHARDED, rollouts=rollouts[2]),
        job(parts, *half, SHARDED, rollouts=rollouts[2]),
        job(parts, *base, SHARDED, resume=True),
    )
    assert metrics_of(parts) == metrics_of(through)
    assert weights(parts).keys() == weights(through).keys()
    assert all(torch.equal(tensor, weights(through)[name]) for name, tensor in weights(parts).items())
