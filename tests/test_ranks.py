"""Several ranks train one model as one process does, stop together, and come back after one of them was killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.ranks import Ranks

SIX_UPDATES = ["--updates", "6", "--set", "train.checkpoint_every=2", "--set", "train.publish_every=2"]
SMALL = ["--prompts", "4", "--group-size", "4", "--max-tokens", "40", "--learning-rate", "1e-3", "--delay", "2"]
# A rule that reads the initial policy besides: each rank lends its network those weights, and scores its share.
SMALL += ["--estimator", "tic", "--set", "estimator.kl=0.05"]
# Each rank's groups are several micro-batches, which go forward and back one by one.
SMALL += ["--set", "train.tokens_per_micro_batch=100"]


@pytest.mark.unit
def test_shares_are_a_division_of_the_work_that_every_rank_knows():
    sizes = [5, 100, 7, 7, 60, 41, 3]
    shares = [Ranks(rank, 3).share(sizes) for rank in range(3)]
    assert sorted(index for share in shares for index in share) == list(range(len(sizes)))
    assert [sum(sizes[index] for index in share) for share in shares] == [100, 63, 60]
    assert Ranks().share(sizes) == list(range(len(sizes)))
    assert Ranks(2, 3).share([1, 1]) == []


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(run, *arguments, ranks=2):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
    options = ["--run", str(run), *SMALL, *arguments]
    command = [sys.executable, *launcher, "--master-port", str(free_port()), "-m", "--", "gmc", "train", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "200"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def wait_for_updates(process, run, count):
    deadline = time.monotonic() + 600  # on a busy machine the engines of two ranks take minutes to start
    while process.poll() is None and time.monotonic() < deadline:
        if (run / "metrics.jsonl").exists() and len((run / "metrics.jsonl").read_text().splitlines()) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"{run}: no {count} updates: {end(process)}")


def weights(run):
    return load_file(sorted((run / "policies").glob("v*"))[-1] / "model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two ranks that nobody disturbed, and what it printed."""
    run = tmp_path_factory.mktemp("ranks") / "whole"
    code, out, err = end(start(run, *SIX_UPDATES, "--json"))
    assert code == 0, err
    return run, out, err


@pytest.mark.process
@pytest.mark.slow
def test_two_ranks_train_what_one_process_trains(whole, tmp_path):
    together, out, err = whole
    assert json.loads(out)["updates"] == 6  # one object, from one rank
    assert err.count("gmc eval --run") == 1
    alone = tmp_path / "alone"
    train_run(
        alone,
        small_settings("delay=2", "train.updates=6", "estimator=tic", "estimator.kl=0.05", "train.tokens_per_micro_batch=100"),
    )
    # Rounding may change a sampled token in time, but hardly in six updates of which three use rollouts of version 0.
    for one, two in zip(metrics_of(alone), metrics_of(together), strict=True):
        compared = {key: value for key, value in one.items() if not key.startswith("noise/")}
        assert {key: two[key] for key in compared} == pytest.approx(compared, abs=1e-4, rel=1e-3)
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(weights(together)[name], tensor, atol=1e-4, rtol=1e-3)


@pytest.mark.process
@pytest.mark.slow
def test_a_killed_rank_ends_all_and_the_run_resumes_to_the_same_end(whole, tmp_path):
    killed = tmp_path / "killed"
    process = start(killed, *SIX_UPDATES)
    wait_for_updates(process, killed, 3)
    rank_0 = int(re.match(r"process (\d+) ", (killed / "lock").read_text())[1])
    os.kill(rank_0, signal.SIGKILL)
    code, _, err = end(process)
    assert code != 0, err
    code, _, err = end(start(killed, "--resume", *SIX_UPDATES))
    assert code == 0, err
    assert metrics_of(killed) == metrics_of(whole[0])
    assert weights_of(killed) == weights_of(whole[0])


@pytest.mark.process
@pytest.mark.slow
def test_ranks_stop_together_and_the_failure_of_one_ends_all(tmp_path):
    run = tmp_path / "run"
    process = start(run, "--updates", "500")
    wait_for_updates(process, run, 2)
    process.send_signal(signal.SIGTERM)
    _, _, err = end(process)
    assert err.count("go on with: gmc train --run") == 1
    done = len(metrics_of(run))
    assert [path.name for path in (run / "checkpoints").glob("u*")] == [f"u{done:06d}"]
    code, _, err = end(start(run, "--updates", "500"))
    assert code != 0
    assert err.count("this run has trained already") == 1
    assert err.count("because rank 0 failed") == 1
