"""Every fault at every file operation of train, rollout, eval, a follower and a live trainer, and every power loss.

    python -m tests.full chaos [--minutes M] [--points N] [--scene NAME] [--out FILE]

Points are tried in an order that spreads over the whole run, so that a shorter time is a fair sample. Ends with status 1 when
anything is violated. Results go to tests/chaos/results.json after every scene.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from tests.chaos.drive import Bench  # noqa: E402
from tests.chaos.live import LiveBench  # noqa: E402
from tests.chaos.scenes import SCENES, warm  # noqa: E402
from tests.chaos.shim import KINDS  # noqa: E402

LIVE = ("follower", "trainer")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full chaos")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each scene")
    parser.add_argument("--points", type=int, help="for each scene (default: all)")
    parser.add_argument("--scene", choices=[*SCENES, *LIVE], action="append")
    parser.add_argument("--out", type=Path, default=TESTS / "chaos" / "results.json")
    asked = parser.parse_args()
    warm()
    results = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    violations = 0
    for name in asked.scene or [*SCENES, *LIVE]:
        results[name] = _scene(name, asked.minutes * 60, asked.points)
        violations += len(results[name]["violations"])
        asked.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        print(f"{name}: {json.dumps({**results[name], 'violations': len(results[name]['violations'])})}", flush=True)
    return int(violations > 0)


def _scene(name: str, seconds: float, most: int | None) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        bench = LiveBench(name, Path(scratch)) if name in LIVE else Bench(SCENES[name], Path(scratch))
        tried: Counter[str] = Counter()
        violations = []
        points = [(kind, point) for kind in KINDS for point in range(len(bench.operations))]
        points = [(kind, point) for kind, point in points if kind != "torn" or bench.operations[point][0] == "write"]
        possible = Counter(kind for kind, _ in points)
        if isinstance(bench, Bench):
            losses = bench.power_losses()
            possible.update(f"power loss, {kind}" for kind, _ in losses)
            points += [(f"power loss, {kind}", number) for kind, number in losses]
        random.Random(0).shuffle(points)
        for kind, point in points[:most]:
            if time.monotonic() - started > seconds:
                break
            tried[kind] += 1
            lost = kind.startswith("power loss")
            found = bench.lose_power(kind.split()[-1], point) if lost else bench.harm(point, kind)  # type: ignore[union-attr]
            where = [] if lost else bench.operations[point]
            violations += [{"kind": kind, "point": point, "operation": where, "what": what} for what in found]
            if found:
                print(name, kind, point, where, found, flush=True)
    return {
        "operations": len(bench.operations),
        "possible": dict(possible),
        "tried": dict(tried),
        "violations": violations,
        "seconds": round(time.monotonic() - started),
    }
