"""Sampling, and whole laboratory runs, beside another version of gmc and beside `model.generate`, in turns.

    python -m benchmarks.sampling [--other PYTHON] [--repeats 5] [--runs 1] [--json FILE]

`--other` names the Python of an environment that has the other version, 0.1 for instance. A whole run is `gmc rollout`,
`gmc train --estimator gmc` and `gmc eval --base` at the shape of `RUN`, each command a process of its own. CPU seconds say more
than the wall clock on a machine that others use; both are there.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import meter
from benchmarks.update import ROOT, Contender

RUN = {"updates": "100", "delay": "64", "samples": "4"}
"""A quarter of the default run: 65 batches of version 0, 100 updates, 4 samples a problem for evaluation."""


def main() -> None:
    """Parse the command line, measure, print tables on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="Python of an environment with another version of gmc")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1, help="turns of whole runs; 0 for none")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    pythons = {"gmc": Path(sys.executable)} | ({"other": arguments.other} if arguments.other else {})
    result = {
        "machine": meter.machine(),
        "sampling": sampling(pythons, arguments.repeats),
        "runs": whole_runs(pythons, arguments.runs) if arguments.runs else [],
    }
    meter.publish(result, arguments.json)


def sampling(pythons: dict[str, Path], repeats: int) -> list[dict[str, Any]]:
    """Tokens per second of eight 8 × 8 batches of the initial policy."""
    worker = str(ROOT / "benchmarks" / "sampling_worker.py")
    commands = {name: [str(python), worker, "gmc"] for name, python in pythons.items()}
    commands["model.generate"] = [sys.executable, worker, "generate"]
    with tempfile.TemporaryDirectory() as scratch:
        contenders = {name: Contender(command, Path(scratch) / f"{name}.log") for name, command in commands.items()}
        try:
            answers = meter.interleaved({name: each.run for name, each in contenders.items()}, repeats)
        finally:
            for each in contenders.values():
                each.close()
    rates = {
        name: {clock: meter.median([run["tokens"] / run["seconds"][clock] for run in runs]) for clock in ("cpu", "wall")}
        for name, runs in answers.items()
    }
    rows = [
        {
            "contender": name,
            "tokens per CPU s": rate["cpu"],
            "tokens per s": rate["wall"],
            "gmc / this, CPU": rates["gmc"]["cpu"] / rate["cpu"],
            "gmc / this, wall": rates["gmc"]["wall"] / rate["wall"],
        }
        for name, rate in rates.items()
    ]
    meter.show("sampling of the embedded model, 8 batches of 8 x 8 responses of up to 64 tokens, one thread", rows)
    return rows


def whole_runs(pythons: dict[str, Path], turns: int) -> list[dict[str, Any]]:
    """Seconds of every command of a run."""
    measured = meter.interleaved({name: lambda python=python: _run(python) for name, python in pythons.items()}, turns)
    rows = []
    for name, runs in measured.items():
        parts = {part: meter.median([run[part] for run in runs]) for part in runs[0]}
        rows.append({"contender": name, **parts, "total, CPU s": sum(parts[part] for part in parts if part.endswith("CPU s"))})
    for row in rows:
        row["this / gmc, CPU"] = row["total, CPU s"] / rows[0]["total, CPU s"]
    meter.show(f"a run of {RUN['updates']} updates at delay {RUN['delay']}, evaluated, one thread", rows)
    return rows


def _run(python: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run = ["--run", str(Path(folder) / "run")]
        commands = {
            "rollout": ["rollout", *run],
            "train": ["train", *run, "--estimator", "gmc", "--delay", RUN["delay"], "--updates", RUN["updates"]],
            "eval": ["eval", *run, "--base", "--n", RUN["samples"]],
        }
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        found = {}
        for name, arguments in commands.items():
            wall, cpu = time.perf_counter(), _children_cpu()
            command = [str(python), "-m", "gmc", *arguments]
            ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if ended.returncode:
                raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
            found[f"{name}, CPU s"], found[f"{name}, s"] = _children_cpu() - cpu, time.perf_counter() - wall
    return found


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
