"""Speed and memory of the cluster simulation at full size: 1,000 updates of 8,192 responses, 10,000 workers × 8 slots.

    python benchmarks/simulate_delay.py [--updates 1000]

Each case runs in its own process, so that its peak memory is its own. One core is used throughout.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

CLUSTER: dict[str, Any] = {
    "workers": 10_000,
    "slots": 8,
    "tokens_per_second": 40,
    "prompts": 1024,
    "group_size": 8,
    "update_seconds": 5.0,
    "sync_seconds": 1.0,
}
CASES: dict[str, dict[str, Any]] = {
    "4 batches ahead": {"max_ahead": 4},
    "16 batches ahead": {"max_ahead": 16},
    "40 batches ahead, workers saturated": {"max_ahead": 40, "update_seconds": 2.0},
    "in-flight updates": {"max_ahead": 16, "in_flight_updates": True},
    "stragglers": {"max_ahead": 16, "straggler_share": 0.05},
    "failures every 50 hours": {"max_ahead": 16, "mtbf_hours": 50.0},
}


def measure(case: str, updates: int) -> dict[str, Any]:
    """Simulate one case in this process."""
    from gmc.simulator.cluster import simulate_cluster
    from gmc.simulator.cluster_settings import ClusterSettings
    from gmc.simulator.lengths import DrawnLengths

    settings = ClusterSettings(**(CLUSTER | CASES[case]))
    lengths = DrawnLengths(1500, 0.8, prompts=1024, group_size=8, seed=1)
    begin = time.perf_counter()
    report = simulate_cluster(settings, lengths, updates=updates, seed=0)
    return {
        "case": case,
        "seconds": round(time.perf_counter() - begin, 2),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "responses": report.lags.delays.responses,
        "worker_utilization": round(report.worker_utilization, 3),
        "mean_delay": round(report.lags.delays.mean, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--case", choices=CASES)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.updates)))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for case in CASES:
        program = [sys.executable, __file__, "--case", case, "--updates", str(arguments.updates)]
        subprocess.run(program, env=environment, check=True)


if __name__ == "__main__":
    main()
