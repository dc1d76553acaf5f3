"""How many graphs fit the memory that is free: what one keeps is counted, and half of what is free may be used."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""Limit and use of a container's memory, by the two versions of Linux's control groups."""


class Room:
    """Counts the bytes that autograd keeps of one micro-batch, and says how many more fit beside it."""

    def __init__(self, network: nn.Module) -> None:
        self._device = next(network.parameters()).device
        self._own = {_storage(tensor) for tensor in (*network.parameters(), *network.buffers())}
        self._sizes: dict[int, int] = {}

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the tensors that are saved for backward within the context, each storage once."""

        def save(tensor: Tensor) -> Tensor:
            if _storage(tensor) not in self._own:
                self._sizes[_storage(tensor)] = tensor.untyped_storage().nbytes()
            return tensor.detach()  # the tensor itself would keep its own graph alive in a cycle

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            yield

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many graphs may be kept at once, of micro-batches with so many tokens: the first, which was counted, and those
        that follow it in order while half of the free memory holds them."""
        per_token = sum(self._sizes.values()) / tokens[0]
        sums = itertools.accumulate(per_token * count for count in tokens[1:])
        return 1 + sum(size <= free_bytes(self._device) // 2 for size in sums)


def free_bytes(device: torch.device) -> int:
    """Memory that this process can still take on a device, in bytes; 0 where the system does not tell.

    On a GPU also what torch's allocator holds and does not use. On a CPU the least of what the machine and its container offer.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if not MEMINFO.exists():
        return 0
    fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    offers = [int(fields["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in fields else []
    for limit, used in CGROUPS:
        if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
            offers.append(max(int(text) - int(used.read_text()), 0))
    return min(offers, default=0)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
