"""`--resume` with a setting that contradicts the run's own is wrong usage, with the cure; damage stays damage."""

import json

import pytest
from training_runs import small_settings, train_run

from gmc.errors import DataError, UsageError

pytestmark = pytest.mark.train

SMALL = ("rollout.max_tokens=4", "rollout.prompts=2", "rollout.group_size=2")


def test_a_contradiction_is_wrong_usage_and_damage_is_damage(tmp_path):
    path = tmp_path / "run"
    train_run(path, small_settings("delay=1", "train.updates=2", *SMALL))
    with pytest.raises(UsageError, match=r"--resume with delay = 0: .*run was started with 1; leave it out"):
        train_run(path, small_settings("delay=0", "train.updates=3", *SMALL), resume=True)
    used = [json.loads(line) for line in (path / "used.jsonl").read_text().splitlines()]
    used[1]["groups"] = [*used[1]["groups"][::-1], [0, 0]]
    (path / "used.jsonl").write_text("".join(json.dumps(record) + "\n" for record in used))
    with pytest.raises(DataError, match=r"used\.jsonl, update 1"):
        train_run(path, small_settings("delay=1", "train.updates=3", *SMALL), resume=True)
