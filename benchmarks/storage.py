"""Shards and start-up: write and read speed of a launch batch, and the time of `gmc --help`.

python -m benchmarks.storage [--repeats 5] [--json FILE]
"""

import argparse
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import meter
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.writer import write_shard

CASES = {"embedded batch": (8, 8, 24, 24), "paper-like batch": (4, 8, 300, 100), "large batch": (64, 16, 300, 1000)}
"""Groups, group size, prompt tokens, mean response tokens."""


def main() -> None:
    """Parse the command line, measure, print tables on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = {
        "machine": meter.machine(),
        "shards": measure_shards(arguments.repeats),
        "help": measure_help(arguments.repeats),
    }
    meter.publish(result, arguments.json)


def measure_shards(repeats: int) -> list[dict[str, Any]]:
    """Write and read each case; MB are those of the file, fsync included."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            rollouts, metadata = _rollouts(*case), _metadata(case[1])
            path = Path(folder) / "b000000-v000000.parquet"
            writes, reads = [], []
            for _ in range(repeats):
                path.unlink(missing_ok=True)
                writes.append(meter.timed(partial(write_shard, path, rollouts, metadata)))
                reads.append(meter.timed(partial(read_shard, path)))
            size = path.stat().st_size / 1e6
            write, read = meter.median(writes), meter.median(reads)
            rows.append(
                {
                    "shard": name,
                    "rows": len(rollouts),
                    "MB": size,
                    "write ms": 1e3 * write,
                    "write MB/s": size / write,
                    "write rows/s": len(rollouts) / write,
                    "read ms": 1e3 * read,
                    "read MB/s": size / read,
                    "read rows/s": len(rollouts) / read,
                }
            )
    meter.show("shards", rows)
    return rows


def measure_help(repeats: int) -> list[dict[str, Any]]:
    """Wall-clock seconds of `gmc --help` in a new process, beside an empty Python."""
    commands = {
        "gmc --help": [str(Path(sys.executable).with_name("gmc")), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    runs = {name: partial(subprocess.run, command, check=True, capture_output=True) for name, command in commands.items()}
    contenders = {name: partial(meter.timed, run) for name, run in runs.items()}
    seconds = meter.interleaved(contenders, repeats)
    rows = [{"command": name, "s": meter.median(values)} for name, values in seconds.items()]
    meter.show("start-up", rows)
    return rows


def _rollouts(groups: int, group_size: int, prompt_tokens: int, response_tokens: int) -> list[Rollout]:
    generator = random.Random(0)
    rollouts = []
    for group in range(groups):
        prompt = [generator.randrange(50_000) for _ in range(prompt_tokens)]
        for sample in range(group_size):
            length = max(1, round(generator.gauss(response_tokens, response_tokens / 3)))
            rollouts.append(
                Rollout(
                    run_id="benchmark",
                    problem_id=str(group),
                    batch=0,
                    group=group,
                    sample=sample,
                    policy_version=0,
                    prompt_token_ids=prompt,
                    response_token_ids=[generator.randrange(50_000) for _ in range(length)],
                    finish_reason="stop",
                    reward=float(sample % 2),
                    status="correct" if sample % 2 else "incorrect",
                    answer="42",
                    prediction="42",
                    prompt="a word or two " * (prompt_tokens // 4),
                    response="a word or two " * (length // 4),
                    engine_logprobs=[-generator.random() for _ in range(length)],
                    trainer_logprobs=[-generator.random() for _ in range(length)],
                )
            )
    return rollouts


def _metadata(group_size: int) -> ShardMetadata:
    return ShardMetadata(
        run_id="benchmark",
        model_id="benchmark",
        weights_hash="0" * 64,
        tokenizer_hash="0" * 64,
        vocabulary_size=50_000,
        engine="transformers",
        engine_version="0",
        sampling={"temperature": "1.0"},
        template_id="none",
        logprob_kinds=("engine", "trainer"),
        seed=0,
        group_size=group_size,
        gmc_version="0",
    )


if __name__ == "__main__":
    main()
