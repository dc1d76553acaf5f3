"""When the part of one rank alone loses its numbers, all ranks of a sharded run stop in the same update and in the same words,
and nothing bad is kept."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sharding_runs import TESTS, command, environment
from spoiled_ranks import CASES

from gmc.store.policies import list_policies

pytestmark = [pytest.mark.process, pytest.mark.slow]

WORDS = {
    "gradient": "NonFiniteError: update 1 (batches [1]): the gradient of estimator gmc is not finite; the update was",
    "step": "NonFiniteError: update 1: training has diverged: after its step (learning rate",
    "weights": "NonFiniteError: update 1 (batches [1]): the loss gradient of estimator gmc is not finite; the update was not",
    "metric": "2 updates, finished: False",
    "metric, said alone": "4 updates, finished: True",
}
KEPT = {"metric": 2, "metric, said alone": 4}
"""The newest version that may be there, 1 where an update failed."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoiled")
    started = command(2, str(TESTS / "spoiled_ranks.py"), str(folder))
    ended = subprocess.run(started, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-6000:]
    return folder


@pytest.mark.parametrize("what", CASES)
def test_all_ranks_stop_alike_and_keep_only_numbers(folder: Path, what: str) -> None:
    first, second = (json.loads((folder / f"rank-{rank}.json").read_text())[what] for rank in range(2))
    assert first == second
    assert first.startswith(WORDS[what])
    assert "\n" not in first
    newest = KEPT.get(what, 1)
    policies = dict(list_policies(folder / what / "policies"))
    assert list(policies) == list(range(1, newest + 1))
    for policy in policies.values():
        for file in policy.glob("*.safetensors"):
            assert all(torch.isfinite(tensor).all() for tensor in load_file(file).values())
    ready = sorted(path.parent.name for path in (folder / what / "checkpoints").glob("u*/READY"))
    assert ready[-1] == f"u{newest:06d}"
