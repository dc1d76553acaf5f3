"""Processes that sample while training goes on: rank 0 starts one for each place of `rollout.devices` and hands it weights.

Each batch is made whole by one process, with the version that launched it, so what it holds depends on neither who made it nor
when: launch order decides, as without these processes. Batches of later versions go first, since their weights are kept only
until they are made; version 0 comes again from the initial model. A process that dies is started again and makes its batch
anew.
"""

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.errors import GmcError
from gmc.store.handover import handover_folder
from gmc.store.run_directory import RunDirectory, policy_name, rollout_name
from gmc.store.shards.reader import Shard, read_shard
from gmc.training.sampler_process import SamplerProcess

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
ATTEMPTS = 3
"""How often a batch is tried before its process's deaths end training."""

Job = tuple[bool, int, int]
"""Whether it is of version 0, its batch, its version: the order of work."""


class SamplerPool:
    """Makes launch batches on `places`, each the devices of one process. Used on rank 0; starts nothing before the first batch.

    weight_bytes: size of what is handed over for each version.
    """

    def __init__(self, run: RunDirectory, settings: RunSettings, places: Sequence[Sequence[str]], weight_bytes: int) -> None:
        self._run, self._settings, self._places, self._weight_bytes = run, settings, places, weight_bytes
        self._changed = threading.Condition()
        self._queue: list[Job] = []
        self._shards: dict[int, Future[Path]] = {}
        self._held: Counter[int] = Counter()
        self._written: dict[int, Future[None]] = {}
        self._failure: BaseException | None = None
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._processes: list[SamplerProcess] = []
        self._resources = ExitStack()
        self._folder = run.path

    def start(self, batch: int, version: int, weights: Mapping[str, Tensor] | None) -> None:
        """Have a batch made by policy `version`; returns before it is made. weights: of a version seen for the first time.

        Waits while more versions are being sampled than there are processes. Raises what ended one of them for good.
        """
        if batch in self._shards:
            return
        if not self._threads:
            self._open()
        with self._changed:
            self._until(lambda: version in self._held or len(self._held) <= len(self._places))
            if weights is not None:
                self._written[version] = self._writer.submit(save_file, dict(weights), self._weights(version))
            self._held[version] += 1
            self._shards[batch] = Future()
            heapq.heappush(self._queue, (version == 0, batch, version))
            self._changed.notify_all()

    def shard(self, batch: int) -> Shard:
        """The batch that was started, when it is made. Raises what ended its process for good."""
        future = self._shards[batch]
        with self._changed:
            self._until(future.done)
        path = future.result()
        shard = read_shard(path, run_id=self._run.run_id)
        path.unlink()
        del self._shards[batch]
        return shard

    def close(self) -> None:
        """End all processes, in the middle of a batch too. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for process in self._processes:
            process.tell_to_end()
        self._resources.close()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _open(self) -> None:
        needed = self._weight_bytes * (len(self._places) + 3)  # those being sampled, one waiting, one being written, version 0
        self._folder = self._resources.enter_context(handover_folder(self._run.path / "handover", needed))
        self._writer = self._resources.enter_context(ThreadPoolExecutor(1, thread_name_prefix="hand-over"))
        for index, devices in enumerate(self._places):
            process = SamplerProcess(f"sampler-{index}", devices, self._run, self._settings, self._folder)
            self._resources.callback(process.close)
            self._processes.append(process)
            thread = threading.Thread(target=self._work, args=(process,), name=process.name, daemon=True)
            self._threads.append(thread)
            thread.start()
        where = ", ".join("+".join(devices) for devices in self._places)
        log.info("sampling in %d processes (%s) while training goes on", len(self._places), where)

    def _weights(self, version: int) -> Path:
        return self._folder / f"{policy_name(version)}.safetensors"

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure
            self._changed.wait(POLL_SECONDS)

    def _work(self, process: SamplerProcess) -> None:
        try:
            while (job := self._take()) is not None:
                self._make(process, job)
        except BaseException as error:  # rank 0's main thread raises it
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _take(self) -> Job | None:
        with self._changed:
            while not self._queue and not self._closing:
                self._changed.wait(POLL_SECONDS)
            return None if self._closing else heapq.heappop(self._queue)

    def _make(self, process: SamplerProcess, job: Job) -> None:
        _, batch, version = job
        if version:
            self._written[version].result()
        path = self._folder / rollout_name(batch, version)
        for attempt in range(1, ATTEMPTS + 1):
            path.unlink(missing_ok=True)
            asked = {"batch": batch, "version": version, "weights": str(self._weights(version)), "shard": str(path)}
            if process.ask(asked):
                break
            if self._closing:
                return
            log.warning("%s ended in batch %d%s", process, batch, "" if attempt == ATTEMPTS else " and is started again")
        else:
            raise GmcError(f"{process} ended {ATTEMPTS} times in batch {batch}; its messages are in {process.log_file}")
        with self._changed:
            self._held[version] -= 1
            if not self._held[version]:
                del self._held[version]
                if self._written.pop(version, None):
                    self._weights(version).unlink(missing_ok=True)
            self._shards[batch].set_result(path)
            self._changed.notify_all()
