"""Every fault at every file operation of train, rollout, eval, a follower and a live trainer, and every power loss.

    python -m tests.full chaos [--minutes M] [--points N] [--scene NAME] [--anew] [--out FILE]

Points are tried in an order that spreads over the whole run, so that a shorter time is a fair sample. Ends with status 1 when
anything is violated. Results go to tests/chaos/results.json as they come; the same command goes on where the last one stopped.
"""

import argparse
import fcntl
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from gmc.store.files import write_text  # noqa: E402
from tests.chaos.drive import Bench  # noqa: E402
from tests.chaos.live import LiveBench  # noqa: E402
from tests.chaos.scenes import SCENES, warm  # noqa: E402
from tests.chaos.shim import KINDS  # noqa: E402

LIVE = ("follower", "trainer")


SAVE_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full chaos")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each scene")
    parser.add_argument("--points", type=int, default=sys.maxsize, help="for each scene (default: all)")
    parser.add_argument("--scene", choices=[*SCENES, *LIVE], action="append")
    parser.add_argument("--out", type=Path, default=TESTS / "chaos" / "results.json")
    parser.add_argument("--anew", action="store_true", help="forget the points tried before")
    asked = parser.parse_args()
    warm()
    violations = 0
    for name in asked.scene or [*SCENES, *LIVE]:
        found = _scene(name, asked)
        violations += len(found["violations"])
        print(f"{name}: {json.dumps({**found, 'violations': len(found['violations'])})}", flush=True)
    return int(violations > 0)


def _scene(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Go on with one scene where the results file says that it stopped; returns all that is known of it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        bench = LiveBench(name, Path(scratch)) if name in LIVE else Bench(SCENES[name], Path(scratch))
        earlier = None if asked.anew else _read(asked.out).get(name)
        found = earlier if earlier and _goes_on(earlier, bench) else _nothing_yet(bench)
        points = _points(bench, found)
        found["possible"] = dict(sorted(Counter(kind for kind, _ in points).items()))
        started, before = time.monotonic(), found["seconds"]
        todo = points[found["position"] : min(asked.points, len(points))]
        for done, (kind, point) in enumerate(todo, 1):
            if time.monotonic() - started > asked.minutes * 60:
                break
            _try(bench, name, kind, point, found)
            found["seconds"] = round(before + time.monotonic() - started)
            if done % SAVE_EVERY == 0:
                _save(asked.out, name, found)
    _save(asked.out, name, found)
    return dict(found)


def _nothing_yet(bench: Bench | LiveBench) -> dict[str, Any]:
    return {
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=TESTS).stdout.strip()[:9],
        "operations": len(bench.operations),
        "writes": [point for point, (operation, _) in enumerate(bench.operations) if operation == "write"],
        "possible": {},
        "position": 0,
        "tried": {},
        "harmed": 0,
        "violations": [],
        "seconds": 0,
    }


def _goes_on(earlier: dict[str, Any], bench: Bench | LiveBench) -> bool:
    """Whether the points are the same; real time decides how many operations a live scene has, which changes nothing."""
    return "position" in earlier and (isinstance(bench, LiveBench) or earlier["operations"] == len(bench.operations))


def _points(bench: Bench | LiveBench, found: dict[str, Any]) -> list[tuple[str, int]]:
    """Every kind at every operation, and every power loss, in an order that is a fair sample wherever it is cut."""
    points = [(kind, point) for kind in KINDS if kind != "torn" for point in range(found["operations"])]
    points += [("torn", point) for point in found["writes"]]
    if isinstance(bench, Bench):
        points += [(f"power loss, {kind}", number) for kind, number in bench.power_losses()]
    random.Random(0).shuffle(points)
    return points


def _try(bench: Bench | LiveBench, name: str, kind: str, point: int, found: dict[str, Any]) -> None:
    lost = kind.startswith("power loss")
    broken = bench.lose_power(kind.split()[-1], point) if lost else bench.harm(point, kind)  # type: ignore[union-attr]
    where = [] if lost or point >= len(bench.operations) else bench.operations[point]
    found["position"] += 1
    found["tried"][kind] = found["tried"].get(kind, 0) + 1
    found["harmed"] += lost or bench.mark.exists()
    found["violations"] += [{"kind": kind, "point": point, "operation": where, "what": what} for what in broken]
    if broken:
        print(name, kind, point, where, broken, flush=True)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _save(path: Path, name: str, found: dict[str, Any]) -> None:
    """Several commands may write one file, each its own scenes."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_text(path, json.dumps({**_read(path), name: found}, indent=1) + "\n")
