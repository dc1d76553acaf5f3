"""Every fault at every file operation of train, rollout, eval, a follower and a live trainer, and every power loss.

    python -m tests.full chaos [--minutes M] [--points N] [--scene NAME] [--jobs N] [--again] [--anew] [--out FILE]

Points are tried in an order that spreads over the whole run, so that a shorter time is a fair sample. Ends with status 1 when
anything is violated. Results go to tests/chaos/results.json as they come; at the same commit the command goes on where the last
one stopped.
"""

import argparse
import fcntl
import json
import multiprocessing
import os
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
from tests.chaos.live import LiveBench  # noqa: E402
from tests.chaos.shim import KINDS, Place  # noqa: E402

LIVE = ("follower", "trainer")
ALONE = ("rollout", "eval", "train --delay 0", "train --delay 1")
LIVE_AT_ONCE = 8
"""Live processes mostly wait."""
POINTS_A_JOB = 10
"""Between two savings of the results."""

Point = tuple[str, str, int]
"""A kind of harm, and its place by thread and number; of a power loss the kind of disk and the number of its state."""

_bench: Any = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full chaos")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each scene")
    parser.add_argument("--points", type=int, default=sys.maxsize, help="for each scene (default: all)")
    parser.add_argument("--scene", choices=[*LIVE, *ALONE], action="append")
    parser.add_argument("--jobs", type=int, help=f"processes (default: 1, {LIVE_AT_ONCE} for a live scene)")
    parser.add_argument("--out", type=Path, default=TESTS / "chaos" / "results.json")
    parser.add_argument("--again", action="store_true", help="try points anew that were violated")
    parser.add_argument("--anew", action="store_true", help="forget the points tried before")
    asked = parser.parse_args()
    violations = 0
    wanted = asked.scene or [*LIVE, *ALONE]
    for name in sorted(wanted, key=[*LIVE, *ALONE].index):  # live ones fork a process without torch
        found = _scene(name, asked)
        violations += len(found["violations"])
        shown = {key: value for key, value in found.items() if key not in ("operations", "writes", "violations")}
        print(f"{name}: {json.dumps({**shown, 'violations': len(found['violations'])})}", flush=True)
    return int(violations > 0)


def _scene(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Go on with one scene where the results file says that it stopped; returns all that is known of it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        bench = _open(name, Path(scratch))
        found = _nothing_yet(bench)
        earlier = None if asked.anew else _read(asked.out).get(name)
        if earlier and earlier["commit"] == found["commit"] and (name in LIVE or earlier["operations"] == found["operations"]):
            found = earlier
        points = _points(found)
        found["possible"] = dict(sorted(Counter(kind for kind, *_ in points).items()))
        jobs = asked.jobs or (LIVE_AT_ONCE if name in LIVE else 1)
        with multiprocessing.get_context("fork").Pool(jobs, _work, (bench,)) as pool:
            if asked.again:
                _try_violated(pool, found)
            _try_all(pool, points[: asked.points], jobs, found, name, asked)
    return found


def _try_violated(pool: Any, found: dict[str, Any]) -> None:
    """A violation may have come from outside, as when packages are installed meanwhile: keep what comes again."""
    points = sorted({tuple(each["point"]) for each in found["violations"]})
    found["violations"], found["again"] = [], found.get("again", 0) + len(points)
    for point, (met, broken, new) in zip(points, pool.map(_try, points, chunksize=1), strict=True):
        found["position"] -= 1
        found["tried"][point[0]] -= 1
        _note(found, point, met, broken)
        found["distinct"] += new


def _open(name: str, scratch: Path) -> Any:
    if name in LIVE:
        return LiveBench(name, scratch)
    from tests.chaos.drive import Bench
    from tests.chaos.scenes import SCENES, warm

    warm()
    return Bench(SCENES[name], scratch)


def _try_all(pool: Any, points: list[Point], jobs: int, found: dict[str, Any], name: str, asked: argparse.Namespace) -> None:
    started, before, step = time.monotonic(), found["seconds"], jobs * POINTS_A_JOB
    while found["position"] < len(points) and time.monotonic() - started <= asked.minutes * 60:
        some = points[found["position"] : found["position"] + step]
        for point, (met, broken, new) in zip(some, pool.map(_try, some, chunksize=1), strict=True):
            _note(found, point, met, broken)
            found["distinct"] += new
        found["seconds"] = round(before + time.monotonic() - started)
        _save(asked.out, name, found)


def _nothing_yet(bench: Any) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=TESTS).stdout.strip()[:9]
    writes = {
        thread: [number for number, (operation, _) in enumerate(operations) if operation == "write"]
        for thread, operations in bench.operations.items()
    }
    return {
        "commit": commit,
        "operations": {thread: len(operations) for thread, operations in bench.operations.items()},
        "writes": writes,
        "losses": bench.losses,
        "possible": {},
        "position": 0,
        "tried": {},
        "met": 0,
        "distinct": 0,
        "violations": [],
        "seconds": 0,
    }


def _points(found: dict[str, Any]) -> list[Point]:
    """Every kind at every operation, and every power loss, in an order that is a fair sample wherever it is cut."""
    every = [(thread, number) for thread, count in found["operations"].items() for number in range(count)]
    points = [(kind, *place) for kind in KINDS if kind != "torn" for place in every]
    points += [("torn", thread, number) for thread, numbers in found["writes"].items() for number in numbers]
    points += [("power loss", kind, number) for kind, count in found["losses"].items() for number in range(count)]
    random.Random(0).shuffle(points)
    return points


def _work(bench: Any) -> None:
    global _bench
    _bench = bench.apart(os.getpid())


def _try(point: Point) -> tuple[bool, list[str], int]:
    """Whether the harm came about, the violations, and how many new disks were gone on from."""
    kind, thread, number = point
    before = _bench.distinct
    tried = _bench.lose_power(thread, number) if kind == "power loss" else _bench.harm(kind, Place(thread, number))
    return tried.met, tried.broken, _bench.distinct - before


def _note(found: dict[str, Any], point: Point, met: bool, broken: list[str]) -> None:
    found["position"] += 1
    found["tried"][point[0]] = found["tried"].get(point[0], 0) + 1
    found["met"] += met
    found["violations"] += [{"point": point, "what": what} for what in broken]
    if broken:
        print(point, broken, flush=True)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _save(path: Path, name: str, found: dict[str, Any]) -> None:
    """Several commands may write one file, each its own scenes."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_text(path, json.dumps({**_read(path), name: found}) + "\n")
