"""How new weights come into vLLM servers: from a file that each of them reads, or from one broadcast over NCCL to all of them.

The file is written in any case and stays the truth: every worker is compared with it, and a server that was started anew reads
it. The broadcast is vLLM's own (`vllm.distributed.weight_transfer`); here is only whom it goes to.
"""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

import torch
from torch import Tensor

from gmc.engines.server_client import ServerClient
from gmc.engines.server_waiting import side_by_side
from gmc.engines.vllm_start import vllm_version
from gmc.errors import GmcError, UsageError

START = '--weight-transfer-config \'{"backend": "nccl"}\''
"""What a server has to be started with so that it takes part in broadcasts."""


class WeightTransfer(ABC):
    """One way into the servers. name: as `rollout.weight_transfer`."""

    name: ClassVar[str]

    @abstractmethod
    def send(self, weights: Mapping[str, Tensor], holding: Callable[[], Sequence[ServerClient]]) -> list[ServerClient]:
        """The servers that hold the weights now; the others read the file. None of them may be sampling.

        holding: those that have gone on since they took the weights before. Raises `GmcError` when a transfer fails.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the servers."""


class FolderTransfer(WeightTransfer):
    """Nothing is sent: each server reads the file."""

    name = "folder"

    def send(self, weights: Mapping[str, Tensor], holding: Callable[[], Sequence[ServerClient]]) -> list[ServerClient]:
        return []

    def close(self) -> None:
        pass


class NcclTransfer(WeightTransfer):
    """vLLM's NCCL broadcast: this process is rank 0, the workers of all servers are the others.

    seconds: how long a hand-over may take. Within NCCL a member that is gone cannot be told from a slow one, so a broadcast
    that does not end is an error. Raises `UsageError` where this process has no GPU or no vLLM.
    """

    name = "nccl"

    def __init__(self, seconds: float) -> None:
        if not torch.cuda.is_available():
            raise UsageError(
                "rollout.weight_transfer = nccl: NCCL needs a GPU in this process and in every server, and there is none here; "
                "use folder"
            )
        vllm_version()
        self._seconds = seconds
        self._members: list[ServerClient] = []
        self._sender: Any = None
        self._given: Mapping[str, Tensor] = {}

    def send(self, weights: Mapping[str, Tensor], holding: Callable[[], Sequence[ServerClient]]) -> list[ServerClient]:
        self._given, servers = weights, list(holding())
        try:
            if servers != self._members:
                self.close()
                if servers:
                    self._sender = _within(self._seconds, partial(self._open, servers))
                self._members = servers
            if servers:
                _within(self._seconds, self._sender.send_weights)
        except Exception as error:  # whatever CUDA, NCCL, vLLM or a server says
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise GmcError(
                f"rollout.weight_transfer = nccl: weights did not reach {', '.join(each.url for each in servers)} ({reason}); "
                f"start each server with {START}, or go on with --resume and rollout.weight_transfer=folder"
            ) from error
        return list(servers)

    def close(self) -> None:
        sender, self._sender, members, self._members = self._sender, None, self._members, []
        if sender is None:
            return
        with contextlib.suppress(GmcError):  # a server that is gone has let go
            _Control(members, []).shutdown_weight_transfer_engine()
        sender.shutdown()

    def _open(self, servers: Sequence[ServerClient]) -> Any:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        workers = [len(server.call("gmc_mark")) for server in servers]
        address, port = _own_address(servers[0].url)
        about = NCCLTrainerInitInfo(master_address=address, master_port=port, world_size=1 + sum(workers), rank=0)
        client, source = _Control(servers, workers), _source(lambda: self._given)
        return WeightTransferTrainerFactory.trainer_init(about, client=client, source=source)


class _Control:
    """What vLLM's sender says to a server, said to all of them. workers: how many each has."""

    def __init__(self, servers: Sequence[ServerClient], workers: Sequence[int]) -> None:
        self._servers, self._workers = servers, workers

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        first, bodies = int(init_info["rank_offset"]), dict[ServerClient, Any]()
        for server, count in zip(self._servers, self._workers, strict=True):
            bodies[server] = {"init_info": {**init_info, "rank_offset": first}}
            first += count
        side_by_side({server: partial(server.post, "/init_weight_transfer_engine", body) for server, body in bodies.items()})

    def shutdown_weight_transfer_engine(self) -> None:
        self._all("/shutdown_weight_transfer_engine", {})

    def start_weight_update(self) -> None:
        self._all("/start_weight_update", {})

    def update_weights(self, update_info: Any) -> None:
        self._all("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all("/finish_weight_update", {} if weight_version is None else {"weight_version": weight_version})

    def _all(self, path: str, body: Mapping[str, Any]) -> None:
        side_by_side({server: partial(server.post, path, body) for server in self._servers})


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


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` gives. Raises `TimeoutError` when it takes longer; its thread is then left alone, for NCCL hears nobody."""
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, name="weight-transfer", daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise TimeoutError(f"not done after {seconds:.0f} s")
    value, error = ended[0]
    if error is not None:
        raise error
    return value


def _own_address(url: str) -> tuple[str, int]:
    """The address under which the server at `url` sees this machine, and a port that is free on it."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((parts.hostname, parts.port or 80))  # sends nothing
        address = str(route.getsockname()[0])
    with socket.socket() as listener:
        listener.bind((address, 0))
        return address, int(listener.getsockname()[1])


TRANSFERS: Mapping[str, Callable[[float], WeightTransfer]] = {
    FolderTransfer.name: lambda _: FolderTransfer(),
    NcclTransfer.name: NcclTransfer,
}
