"""How new weights come into vLLM servers: from a file that each of them reads, or from one broadcast over NCCL to all of them.

The file is written in any case and stays the truth: every worker is compared with it, and a server that was started anew reads
it. The broadcast is vLLM's own (`gmc.engines.nccl`).
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from gmc.engines.nccl import Control, open_sender, require_nccl, within
from gmc.engines.server_client import ServerClient
from gmc.errors import GmcError

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
        require_nccl("this process and in every server")
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
                    self._sender = within(self._seconds, partial(self._open, servers))
                self._members = servers
            if servers:
                within(self._seconds, self._sender.send_weights)
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
            Control(members, []).shutdown_weight_transfer_engine()
        sender.shutdown()

    def _open(self, servers: Sequence[ServerClient]) -> Any:
        return open_sender(servers, [len(server.call("gmc_mark")) for server in servers], lambda: self._given)


TRANSFERS: Mapping[str, Callable[[float], WeightTransfer]] = {
    FolderTransfer.name: lambda _: FolderTransfer(),
    NcclTransfer.name: NcclTransfer,
}
