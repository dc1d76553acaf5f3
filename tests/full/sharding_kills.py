"""Ranks of a sharded run are killed, and what launched them: all end, nothing stays, and `--resume` comes to the same end.

python -m tests.full sharding_kills [RANDOM MOMENTS]

Every victim at every named moment, random ones besides; then two kills resumed by three ranks and without sharding, and two of
torchrun itself.
"""

import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where pytest finds what tests share

import kill_moments as kills
from forked_ranks import ForkedRanks, Kill
from killed_launcher import kill_launcher
from sharding_runs import SHARDED, job
from test_sharding import require_equal
from training_runs import small_settings, train_run


def main() -> int:
    extra, started, forks = int(sys.argv[1]) if len(sys.argv) > 1 else 12, time.monotonic(), ForkedRanks()
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = named_and_random(forks, Path(scratch), extra)
        outcomes += other_ranks(forks, Path(scratch))
        forks.close()
        outcomes += launcher(Path(scratch))
    print(f"{len(outcomes)} resumes, {outcomes.count(False)} wrong, {time.monotonic() - started:.0f} s")
    return int(not all(outcomes))


def said(what: str, check: Any, *arguments: Any) -> bool:
    """Whether a check found nothing; what it found is printed."""
    try:
        check(*arguments)
    except AssertionError as error:
        print(f"WRONG {what}: {str(error)[-3000:]}", flush=True)
        return False
    print(f"ok    {what}", flush=True)
    return True


def named_and_random(forks: ForkedRanks, folder: Path, extra: int) -> list[bool]:
    whole = folder / "whole"
    steps = forks.finish(2, job(whole, *kills.KEEPS_A_GRADIENT, SHARDED), folder=folder / "ranks")
    kills.require_movement(whole)
    expected, rng, cases = kills.outcome(whole), random.Random(0), list[tuple[str, Kill, Any]]()
    for moment, victims in kills.moments(steps).items():
        cases += [(f"{victim}, {moment}", kill, kills.NEWEST[moment]) for victim, kill in victims.items()]
    for _ in range(extra):
        rank, thread, both = rng.randrange(2), rng.choice(["main", "writer"]), rng.random() < 0.3
        step = rng.randrange(len(steps[rank][thread]))
        name = f"{'both' if both else f'rank {rank}'}, {thread} of {rank} before step {step}, {steps[rank][thread][step]}"
        cases.append((name, Kill(rank, thread, step, both), ...))

    def check(number: int, kill: Kill, newest: Any) -> None:
        run = folder / f"killed-{number}"
        ended = forks.run(2, job(run, *kills.KEEPS_A_GRADIENT, SHARDED), folder=folder / "ranks", kill=kill)
        kills.require_dead(ended["codes"], kill)
        assert newest in (..., kills.newest_checkpoint(run)), kills.newest_checkpoint(run)
        begun = (run / "settings" / "train.toml").exists()
        forks.finish(2, job(run, *kills.KEEPS_A_GRADIENT, SHARDED, resume=begun), folder=folder / "ranks")
        for part, value in kills.outcome(run).items():
            assert value == expected[part], part
        shutil.rmtree(run)

    return [said(name, check, number, kill, newest) for number, (name, kill, newest) in enumerate(cases)]


def other_ranks(forks: ForkedRanks, folder: Path) -> list[bool]:
    """Two kills, resumed by three ranks, and by one process without sharding; up to rounding."""
    base, whole = kills.KEEPS_WEIGHTS, folder / "weights"
    steps = forks.finish(2, job(whole, *base, SHARDED), folder=folder / "ranks")
    kills.require_movement(whole)
    outcomes = []
    for number, moment in enumerate(("updating", "ready")):
        parts = folder / f"parts-{number}"
        kill = kills.moments(steps)[moment][f"rank {number}"]

        def three(parts: Path = parts, kill: Kill = kill) -> None:
            ended = forks.run(2, job(parts, *base, SHARDED), folder=folder / "ranks", kill=kill)
            kills.require_dead(ended["codes"], kill)
            shutil.copytree(parts, parts.with_name(f"{parts.name}-one"))
            forks.finish(3, job(parts, *base, SHARDED, resume=True), folder=folder / "ranks")
            equal(whole, parts)

        def one(run: Path = parts.with_name(f"{parts.name}-one")) -> None:
            train_run(run, small_settings(*base), resume=True)
            equal(whole, run)

        outcomes.append(said(f"rank {number}, {moment}; resumed by three ranks", three))
        outcomes.append(said(f"rank {number}, {moment}; resumed without sharding", one))
    return outcomes


def equal(whole: Path, run: Path) -> None:
    require_equal(whole, run, apart=0.01, farthest=2)  # three of six updates have a gradient
    assert kills.outcome(run)["used"] == kills.outcome(whole)["used"]


def launcher(folder: Path) -> list[bool]:
    """Torchrun is killed before the first update and amid training; what it has started ends with it."""

    def check(updates: int) -> None:
        run = folder / f"launched-{updates}"
        kill_launcher(run, updates)
        kill_launcher(run, None)
        for part, value in kills.outcome(run).items():
            assert value == kills.outcome(folder / "whole")[part], part

    return [said(f"torchrun, after {updates} updates", check, updates) for updates in (0, 3)]
