"""Followers and a trainer of a live run as processes of their own, with generation and training that only pretend.

python live_processes.py follower RUN MAX_AHEAD LEASE SECONDS_A_BATCH
python live_processes.py trainer RUN UPDATES SECONDS_AN_UPDATE CHECKPOINT_EVERY
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from gmc.delays.base import delay_of
from gmc.live.claims import reopen_lost
from gmc.live.cleanup import clean_policies
from gmc.live.ending import mark_ended
from gmc.live.follow import BatchCounts, Follower, Work
from gmc.live.frontier import Frontier
from gmc.live.heartbeats import TRAINER, HeartbeatWriter, Watcher
from gmc.live.waiting import wait_for_batch
from gmc.store.files import append_jsonl, fsync_file, is_ready, read_jsonl, ready_directory, write_bytes, write_json
from gmc.store.logs import UsedBatches, cut_log, read_used
from gmc.store.run_directory import RunDirectory, checkpoint_name, policy_name

WEIGHTS = bytes(100_000)
"""What stands for a policy's weights. Whoever writes or reads it says so, in a file of its own: a process, or the trainer."""


def moved(run: RunDirectory, who: str, version: int, size: int) -> None:
    """Note that so many bytes of a policy were written or read."""
    append_jsonl(run.path / f"moved-{who}.jsonl", {"version": version, "bytes": size})


def moved_bytes(run: RunDirectory) -> int:
    """All that was noted."""
    return sum(record["bytes"] for path in run.path.glob("moved-*.jsonl") for record in read_jsonl(path))


def publish(run: RunDirectory, version: int) -> None:
    """A policy folder with its record, and a file in place of weights."""
    path = run.policies / policy_name(version)
    if not is_ready(path):
        with ready_directory(path) as folder:
            record = {"run_id": run.run_id, "version": version, "weights_hash": "", "base_model": "", "gmc_version": ""}
            write_json(folder / "gmc.json", record)
            write_bytes(folder / "model.safetensors", WEIGHTS)
        moved(run, "trainer", version, len(WEIGHTS))


def follower(run: RunDirectory, max_ahead: int, lease: float, seconds: float) -> None:
    """Follow, writing shards that say who made them with which policy loaded."""
    loaded: list[int] = []
    engine_free_at = 0.0

    def load_policy(folder: Path) -> None:
        record = json.loads((folder / "gmc.json").read_text("utf-8"))
        loaded.append(record["version"])
        moved(run, str(os.getpid()), loaded[-1], len((folder / "model.safetensors").read_bytes()))

    class Batch:
        def __init__(self, batch: int, version: int) -> None:
            self.record = {"batch": batch, "version": version, "loaded": loaded[-1]}
            self.rest = seconds * random.Random(batch).uniform(0.5, 1.5) / 2
            nonlocal engine_free_at
            engine_free_at = self.sampled_at = max(time.monotonic(), engine_free_at) + self.rest

        def sample(self) -> int:
            time.sleep(max(0.0, self.sampled_at - time.monotonic()))
            return self.record["version"]

        def finish(self, path: Path) -> BatchCounts:
            time.sleep(self.rest)
            write_json(path, self.record)
            return BatchCounts(responses=4, tokens=40)

    Follower(run, Work(load_policy, Batch, at_once=2), max_ahead=max_ahead, lease_seconds=lease).follow()


def trainer(
    run: RunDirectory, updates: int, update_seconds: float, checkpoint_every: int, *, seconds: float = float("inf")
) -> None:
    """Train or resume: checkpoints hold only their update index; every update that is due publishes after its checkpoint.

    seconds: after so many the run ends where it is.
    """
    end_at = time.monotonic() + seconds
    saved = [int(path.name[1:]) for path in run.checkpoints.glob("u*") if is_ready(path)]
    version = max(saved, default=0)
    with run.lock():
        cut_log(run.used, version)
        reopen_lost(run)
        watcher = Watcher(run.followers, 1.0)
        frontier = Frontier(run)
        used = UsedBatches(group.batch for groups in read_used(run.used) for group in groups)
        with HeartbeatWriter(run.followers, TRAINER, 1.0).beating() as heartbeat:
            publish(run, version)
            while version < updates and time.monotonic() < end_at:
                heartbeat.write(f"waiting for the batch of update {version}")
                stored = wait_for_batch(run, frontier, used, watcher=watcher, patience_seconds=60)
                assert stored is not None
                shard = json.loads(stored.path.read_text("utf-8"))
                assert shard == {"batch": stored.batch, "version": stored.version, "loaded": stored.version}
                delay_of(version, stored.version)
                time.sleep(update_seconds)
                used.add(stored.batch)
                append_jsonl(run.used, {"update": version, "groups": [[stored.batch, 0]]})
                version += 1
                if version % checkpoint_every == 0 or version == updates:
                    fsync_file(run.used)
                    with ready_directory(run.checkpoints / checkpoint_name(version)):
                        pass
                    publish(run, version)
                    clean_policies(run, watcher, keep_every=10)
            mark_ended(run, version)


if __name__ == "__main__":
    role, path, *numbers = sys.argv[1:]
    directory = RunDirectory.open(Path(path))
    if role == "follower":
        follower(directory, int(numbers[0]), float(numbers[1]), float(numbers[2]))
    else:
        trainer(directory, int(numbers[0]), float(numbers[1]), int(numbers[2]))


def used_batches(run: RunDirectory) -> list[int]:
    """Batches in the order of use."""
    return [record["groups"][0][0] for record in read_jsonl(run.used)]
