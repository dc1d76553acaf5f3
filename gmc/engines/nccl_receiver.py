"""The other end of vLLM's NCCL transfer: weights come into tensors of this process, in place.

vLLM's receiving engine belongs to a worker and loads into the worker's network. Here it is the only member of its sender's
group besides the sender, and what it loads into are the tensors of a follower's model, which scores with them and hands them
to its engine, however many workers that has.
"""

import contextlib
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gmc.errors import GmcError

PLACE = SimpleNamespace(data_parallel_index=0, world_size=1, rank=0)
"""What vLLM's receiving engine asks of its worker: where that is among the workers of its own."""


class TensorReceiver:
    """Does what vLLM's sender says. tensors: by the names that are sent, all of them; of any dtype, on one device."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._engine: Any = None
        self._missing: set[str] = set()
        device = next(iter(tensors.values())).device
        self._device = device if device.type == "cpu" or device.index is not None else torch.device(device.type, 0)

    def post(self, path: str, content: Mapping[str, Any]) -> None:
        """Do what stands under this path in vLLM's HTTP interface. Raises `GmcError` when weights are not those wanted."""
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            if path == "/init_weight_transfer_engine":
                self._init(content["init_info"])
            elif path == "/start_weight_update":
                self._missing = set(self._tensors)
            elif path == "/update_weights":
                self._engine.update_weights(content["update_info"])
            elif path == "/finish_weight_update":
                self._require_all()
            else:
                raise GmcError(f"a sender of weights asks for {path}, which a follower does not know")

    def load_weights(self, pairs: Iterable[tuple[str, Tensor]]) -> None:
        """Take some of the weights; vLLM's engine calls it for each buffer that came."""
        with torch.no_grad():
            for name, tensor in pairs:
                own = self._tensors.get(name)
                if own is None or own.shape != tensor.shape:
                    raise GmcError(f"weights came for {name} {tuple(tensor.shape)}, which the model has not")
                own.copy_(tensor)
                self._missing.discard(name)

    def close(self) -> None:
        """Leave the group, also amid a transfer: NCCL's communicator is aborted, and work that waits for it ends."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()

    def _init(self, init_info: dict[str, Any]) -> None:
        from vllm.config import WeightTransferConfig
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        self.close()
        about = SimpleNamespace(parallel_config=PLACE, model_config=None)
        engine = NCCLWeightTransferEngine(WeightTransferConfig(backend="nccl"), about, self._device, self)
        engine.init_transfer_engine(engine.parse_init_info(init_info))
        self._engine = engine

    def _require_all(self) -> None:
        if self._missing:
            raise GmcError(f"{len(self._missing)} tensors did not come, such as {min(self._missing)}")
