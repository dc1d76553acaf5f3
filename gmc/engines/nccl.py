"""vLLM's NCCL transfer of weights from this process, to receivers that are told over a connection of their own when to listen.

The transfer is vLLM's (`vllm.distributed.weight_transfer`); here is whom it goes to, and how long it may take. NCCL cannot tell
a member that is gone from a slow one, and hears nobody while it waits.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import torch
from torch import Tensor

from gmc.engines.server_waiting import side_by_side
from gmc.engines.vllm_start import vllm_version
from gmc.errors import UsageError

T = TypeVar("T")

LOOK_SECONDS = 0.1


class Receiver(Protocol):
    """Who takes part in transfers. url: where it is, with a host that this machine reaches."""

    url: str

    def post(self, path: str, content: Any) -> Any:
        """Do what vLLM's HTTP interface does under this path; returns when it is done."""
        ...


def require_nccl(where: str) -> None:
    """Raise `UsageError` where this process has no GPU or no vLLM. where: who needs one besides, for the message."""
    if not torch.cuda.is_available():
        raise UsageError(f"rollout.weight_transfer = nccl: NCCL needs a GPU in {where}, and there is none here; use folder")
    vllm_version()


def open_sender(receivers: Sequence[Receiver], workers: Sequence[int], given: Callable[[], Mapping[str, Tensor]]) -> Any:
    """vLLM's sender to all workers of these receivers, which have joined its group when this returns.

    workers: how many each receiver has; given: the weights to send when they are sent.
    """
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    address, port = _own_address(receivers[0].url)
    about = NCCLTrainerInitInfo(master_address=address, master_port=port, world_size=1 + sum(workers), rank=0)
    return WeightTransferTrainerFactory.trainer_init(about, client=Control(receivers, workers), source=_source(given))


class Control:
    """What vLLM's sender says to a server, said to all receivers. workers: how many each has."""

    def __init__(self, receivers: Sequence[Receiver], workers: Sequence[int]) -> None:
        self._receivers, self._workers = receivers, workers

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        first, bodies = int(init_info["rank_offset"]), list[Any]()
        for count in self._workers:
            bodies.append({"init_info": {**init_info, "rank_offset": first}})
            first += count
        self._each("/init_weight_transfer_engine", bodies)

    def shutdown_weight_transfer_engine(self) -> None:
        self._all("/shutdown_weight_transfer_engine", {})

    def start_weight_update(self) -> None:
        self._all("/start_weight_update", {})

    def update_weights(self, update_info: Any) -> None:
        self._all("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all("/finish_weight_update", {} if weight_version is None else {"weight_version": weight_version})

    def _all(self, path: str, body: Mapping[str, Any]) -> None:
        self._each(path, [body] * len(self._receivers))

    def _each(self, path: str, bodies: Sequence[Any]) -> None:
        given = zip(self._receivers, bodies, strict=True)
        side_by_side({place: partial(receiver.post, path, body) for place, (receiver, body) in enumerate(given)})


def _source(given: Callable[[], Mapping[str, Tensor]]) -> Any:
    """The weights of now in the form that vLLM's sender reads, each on the GPU when its turn comes."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    class Given(WeightSource):  # type: ignore[misc]  # vLLM is not installed where types are checked
        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in given().items()]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            device = torch.accelerator.current_accelerator() or torch.device("cpu")
            for name, tensor in given().items():
                yield name, tensor.detach().to(device)

    return Given()


class Attempt(Generic[T]):
    """Work in a thread of its own, which is left alone when it takes too long."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._ended: list[tuple[T | None, BaseException | None]] = []
        self._thread = threading.Thread(target=self._run, name="weight-transfer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ended.append((self._work(), None))
        except BaseException as error:
            self._ended.append((None, error))

    def wait(self, seconds: float, lost: Callable[[], bool] = lambda: False) -> bool:
        """Whether it has ended within this time. lost: asked meanwhile, ends the wait at once."""
        steps = max(1, round(seconds / LOOK_SECONDS))
        for _ in range(steps):
            self._thread.join(seconds / steps)
            if self._ended or lost():
                break
        return bool(self._ended)

    def result(self) -> T:
        """What ended work came to; raises what it raised."""
        value, error = self._ended[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # None is a result as well


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` gives. Raises `TimeoutError` when it takes longer."""
    attempt = Attempt(work)
    if not attempt.wait(seconds):
        raise TimeoutError(f"not done after {seconds:.0f} s")
    return attempt.result()


def _own_address(url: str) -> tuple[str, int]:
    """The address under which the receiver at `url` sees this machine, and a port that is free on it."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((parts.hostname, parts.port or 80))  # sends nothing
        address = str(route.getsockname()[0])
    with socket.socket() as listener:
        listener.bind((address, 0))
        return address, int(listener.getsockname()[1])
