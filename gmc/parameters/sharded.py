"""Every process holds a part of each parameter: torch's fully_shard (FSDP2), behind the same owner. Nobody else knows DTensor.

What is trained here are plain tensors: each process's rows of every parameter, which share storage with fully_shard's. So
optimizer, anchors, swaps and rules work on them as on any tensor, and only sums over all parameters need the other ranks.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, debug
from transformers.modeling_layers import GradientCheckpointingLayer

from gmc.errors import UsageError
from gmc.estimators.gradient import Gradient
from gmc.models import LanguageModel
from gmc.parameters.base import Outputs, Parameters, RowsOf, all_finite
from gmc.parameters.saved import read_parts, write_parts
from gmc.ranks import PATIENCE, Ranks


class Sharded(Parameters):
    """The rows of each parameter of `model` that are this rank's; the network is sharded in place, onto `device`.

    Layer by layer, the whole parameters are there only while the layer runs, forward and backward: in compute_dtype (bfloat16)
    from float32 rows, None for float32. What is no layer (embedding, last norm, head) stays in float32. Gradients are summed
    over ranks in float32. Every pass has to be made by all ranks, in the same order: whoever has nothing to do runs something
    and sends zeros back. Raises `UsageError` for a network without layers that torch could shard one by one.
    """

    lockstep = True

    def __init__(self, model: LanguageModel, ranks: Ranks, device: str, compute_dtype: torch.dtype | None) -> None:
        network: Any = model.network
        layers = [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not layers:
            raise UsageError(f"train.sharding = full: {type(network).__name__} has no layers that could be sharded; use none")
        mesh = init_device_mesh(torch.device(device).type, (ranks.count,))
        narrow = MixedPrecisionPolicy(compute_dtype, torch.float32, cast_forward_inputs=False)
        plain = MixedPrecisionPolicy(cast_forward_inputs=False)
        self._root = _Root(network)
        # Without resharding the root would go on with its old weights after others were swapped in.
        for layer in layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=True, mp_policy=narrow if compute_dtype else plain)
        fully_shard(self._root, mesh=mesh, reshard_after_forward=True, mp_policy=plain)
        network.to(device)  # what is no parameter
        self._parts: list[Any] = [module for module in self._root.modules() if isinstance(module, FSDPModule)]
        for part in self._parts:
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
        self._sharded: dict[str, Any] = dict(network.named_parameters())
        own = {name: nn.Parameter(parameter.to_local().detach()) for name, parameter in self._sharded.items()}
        super().__init__(model, ranks, own)
        self._host_mesh = mesh if mesh.device_type == "cpu" else init_device_mesh("cpu", (ranks.count,))
        # A group of its own, so that a thread can write beside what the ranks exchange meanwhile.
        self.writing = dist.new_group(backend="gloo", timeout=PATIENCE)
        with torch.no_grad():
            self._root(_nothing)  # the first pass tells the layers who their root is

    def run(self, body: Callable[[], Outputs]) -> Outputs:
        outputs: Outputs = self._root(body)
        return outputs

    def versions(self) -> tuple[int, ...]:
        return tuple(parameter._version for parameter in self.own.values())

    def share(self, sizes: Sequence[int]) -> list[int]:
        return list(range(len(sizes)))

    def clear(self) -> None:
        super().clear()
        for parameter in self._sharded.values():
            parameter.grad = None

    def gradient(self) -> Gradient:
        for name, parameter in self._sharded.items():
            if parameter.grad is not None:
                self.own[name].grad = parameter.grad.to_local()
        return _ShardedGradient([parameter.grad for parameter in self.own.values() if parameter.grad is not None], self.ranks)

    def clip(self, longest: float) -> Tensor:
        gradients = [parameter.grad for parameter in self.tensors if parameter.grad is not None]
        square = torch.nn.utils.get_total_norm(gradients).square()
        self.ranks.add([square])
        torch.nn.utils.clip_grads_with_norm_(self.tensors, longest, square.sqrt())
        return square.sqrt()

    def squared_gradient(self, body: Callable[[], Outputs]) -> Tensor:
        """This rank's part of it: every rank runs the same `body`, and one of them alone sends its gradient back."""
        kept = [parameter.grad for parameter in self._sharded.values()]
        for parameter in self._sharded.values():
            parameter.grad = None
        with torch.enable_grad():
            torch.autograd.backward(self.run(body)[0].sum() * float(self.ranks.is_rank_0))
        parts = [parameter.grad.to_local() for parameter in self._sharded.values() if parameter.grad is not None]
        for parameter, gradient in zip(self._sharded.values(), kept, strict=True):
            parameter.grad = gradient
        return torch.stack([part.double().square().sum() for part in parts]).sum()

    def finite(self, tensors: Sequence[Tensor]) -> bool:
        return not self.ranks.any(not all_finite(tensors))

    def agree(self) -> bool:
        return True  # no number is held twice

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        for part in self._parts:
            part.set_reshard_after_forward(False)
            part.unshard()
        try:
            yield
        finally:
            for part in self._parts:
                part.reshard()
                part.set_reshard_after_forward(True)

    def shape(self, name: str) -> torch.Size:
        shape: torch.Size = self._sharded[name].shape
        return shape

    def part(self, name: str, whole: Tensor) -> Tensor:
        chunks = whole.chunk(self.ranks.count)
        return chunks[self.ranks.rank] if self.ranks.rank < len(chunks) else whole[:0]

    def read(self, folder: Path, rows_of: RowsOf) -> dict[str, Tensor]:
        def empty(key: str, shape: torch.Size, dtype: torch.dtype) -> Tensor:
            name = rows_of(key, shape)
            if name is None:
                return torch.empty(shape, dtype=dtype)
            return self._distributed(name, torch.empty(self.own[name].shape, dtype=dtype))

        read = read_parts(folder, empty, self.ranks.objects)
        return {key: tensor.to_local() if isinstance(tensor, DTensor) else tensor for key, tensor in read.items()}

    def write(self, folder: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, str]) -> None:
        """Write tensors together with the other ranks; rows: of which parameter they have this rank's rows, by their name.

        May be called from a thread of its own, by one thread of each rank at a time.
        """
        parts = {
            key: self._distributed(rows[key], tensor.detach()) if key in rows else tensor for key, tensor in tensors.items()
        }
        write_parts(folder, parts, self.writing)

    def close(self) -> None:
        dist.destroy_process_group(self.writing)
        # It holds the last mesh, and so a group with its threads, until Python goes down. No public function empties it.
        if (clear := getattr(debug, "_clear_sharding_prop_cache", None)) is not None:
            clear()

    def _distributed(self, name: str, part: Tensor) -> Tensor:
        whole = self._sharded[name]
        mesh = self._host_mesh if part.device.type == "cpu" else whole.device_mesh
        tensor: Tensor = DTensor.from_local(
            part, mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
        )
        return tensor

    def full(self) -> Iterator[tuple[str, Tensor]]:
        for name, part in self.own.items():
            shape = self.shape(name)
            rows = part.new_zeros(-(-shape[0] // self.ranks.count), *shape[1:])  # as many on every rank, the last ones padded
            rows[: len(part)] = part.detach()
            yield name, self.ranks.stack(rows)[: shape[0]]


class _Root(nn.Module):
    """Runs a pass as its own forward, so that the parameters outside the layers are whole meanwhile."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, body: Callable[[], Outputs]) -> Outputs:
        return body()  # a tuple: outputs of another type would get no hooks for the way back


class _ShardedGradient(Gradient):
    """This rank's part of a gradient; products are those of the whole."""

    def __init__(self, tensors: Sequence[Tensor], ranks: Ranks) -> None:
        super().__init__(tensors)
        self._ranks = ranks

    def dot(self, other: Gradient) -> float:
        product = torch.tensor([super().dot(other)], dtype=torch.float64, device=self.tensors[0].device)
        self._ranks.add([product])
        return product.item()

    def of(self, tensors: Sequence[Tensor]) -> Gradient:
        return _ShardedGradient(tensors, self._ranks)


def _nothing() -> Outputs:
    return ()
