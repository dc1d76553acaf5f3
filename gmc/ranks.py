"""Several processes that train one model together, as torchrun starts them.

Each rank holds the whole model and sees every update's whole batch, so a rule may look as far as it likes. What is shared is
the work: each rank samples, scores and differentiates its own groups, and sums are exchanged. Only rank 0 writes
files and speaks.
"""

import atexit
import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from gmc.errors import GmcError
from gmc.lifeline import stop_with_launcher

T = TypeVar("T")

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun puts into the environment of each process it starts."""

PATIENCE = timedelta(days=7)
"""Ranks wait for a rank 0 that waits for followers; torchrun, not a clock, ends them when one of them fails."""

JOIN = timedelta(minutes=15)
"""But they meet within this, or not at all: torchrun starts all of them at once, and may be gone before they can hear of it."""


class RankError(GmcError):
    """This rank cannot go on because another one has failed."""


@dataclass(frozen=True)
class Ranks:
    """This process among `count`. local: its number on this machine, which is the number of its GPU.

    objects: the process group that carries Python objects, None for one process.
    """

    rank: int = 0
    count: int = 1
    local: int = 0
    objects: Any = None

    @property
    def is_rank_0(self) -> bool:
        """Whether this rank writes the files and speaks."""
        return self.rank == 0

    def share(self, sizes: Sequence[int]) -> list[int]:
        """Which pieces of work are this rank's, ascending. sizes: the cost of each piece, in any unit.

        The largest piece goes to the rank that has least so far; every rank comes to the same division.
        """
        if self.count == 1:
            return list(range(len(sizes)))
        loads, mine = [0] * self.count, []
        for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
            rank = loads.index(min(loads))
            loads[rank] += sizes[index]
            if rank == self.rank:
                mine.append(index)
        return sorted(mine)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over all ranks: the same bits on each of them."""
        if self.count > 1:
            with _peers():
                for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                    work.wait()

    def stack(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, one below the other; they have to be of one shape."""
        if self.count == 1:
            return tensor
        stacked = tensor.new_empty(self.count * len(tensor), *tensor.shape[1:])
        with _peers():
            dist.all_gather_single(stacked, tensor)
        return stacked

    def collect(self, item: T) -> list[T]:
        """The `item` of every rank, in the order of ranks."""
        if self.count == 1:
            return [item]
        items: list[Any] = [None] * self.count
        with _peers():
            dist.all_gather_object(items, item, group=self.objects)
        return items

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return any(self.collect(flag))

    def from_rank_0(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, for every rank. When it raises there, the others raise `RankError`.

        Rank 0 waits until every rank has come, so what it changes on disk is never changed under another rank's reading.
        """
        if self.count == 1:
            return make()
        self.collect(None)
        if not self.is_rank_0:
            with _peers():
                received: T = self._broadcast(None)
            return received
        try:
            made = make()
        except BaseException:
            self._broadcast((False, None))
            raise
        with _peers():
            self._broadcast((True, made))
        return made

    def _broadcast(self, answer: Any) -> Any:
        box = [answer]
        dist.broadcast_object_list(box, src=0, group=self.objects)
        succeeded, made = box[0]
        if not succeeded and not self.is_rank_0:
            raise RankError(f"rank {self.rank} stops, because rank 0 failed; its message says why")
        return made


ALONE = Ranks()
"""One process that does everything: training without torchrun."""


def coming_ranks() -> int:
    """How many processes torchrun has started beside and with this one; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in TORCHRUN) else 1


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """This process's place among those that torchrun started, for as long as the context; `ALONE` without torchrun."""
    if coming_ranks() == 1:
        yield ALONE
        return
    stop_with_launcher()
    _join()
    # An error that is on its way out holds frames, and they the groups; by then it is gone.
    atexit.register(gc.collect)
    try:
        objects = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Ranks(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]), objects)
    finally:
        dist.destroy_process_group()
        del objects
        # That leaves a group and its threads to whoever holds it, cycles of dead modules among them. A thread that still
        # lets go of a tensor while Python ends is ended by Python, and ends the process with it (SIGABRT, after success).
        gc.collect()


def _join() -> None:
    """Meet the other ranks. Raises `RankError` when they, or torchrun, are not there within `JOIN`."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, count = next(rendezvous("env://", timeout=JOIN))
        store.set_timeout(PATIENCE)  # groups of NCCL meet there when they are first used, which may be after days
        own = dist.PrefixStore("default_pg", store)  # type: ignore[attr-defined]  # torch does not list it
        dist.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=PATIENCE)
    except dist.DistError as error:
        reason, where = str(error).strip().splitlines()[0], f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise RankError(
            f"rank {os.environ['RANK']} did not reach the other ranks at {where} within {JOIN.total_seconds() / 60:g} minutes; "
            f"does torchrun still run there? ({reason})"
        ) from error


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RankError(f"rank {dist.get_rank()} cannot reach the others; see which of them failed first ({reason})") from error
