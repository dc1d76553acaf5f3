"""What the last update of a run computes on its way: log-probs, the weights put together, the gradient, and that clipped."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import save_file
from torch import Tensor

from gmc.estimators.gradient import Gradient
from gmc.parameters.base import Parameters
from gmc.ranks import ALONE, Ranks
from gmc.scoring.forward import Forward
from gmc.training import update


@contextlib.contextmanager
def kept_batch(file: Path, ranks: Ranks = ALONE) -> Iterator[None]:
    """Train inside. Writes `logp_BT`, `norm` and, by parameter, `full NAME`, `summed NAME` and `clipped NAME`.

    Gradients of parts are put together here, not by the code under test: what lies on the ranks, in their order.
    """
    kept: dict[str, Tensor] = {}
    make = update.model_gradient

    def keep(parameters: Parameters, what: str) -> None:
        for name, parameter in parameters.own.items():
            parts = ranks.collect(parameter.grad) if parameters.lockstep else [parameter.grad]
            kept[f"{what} {name}"] = torch.cat([part for part in parts if part is not None])

    def clipping(parameters: Parameters, clip: Callable[[float], Tensor]) -> Callable[[float], Tensor]:
        def clipped(longest: float) -> Tensor:
            del parameters.clip  # or the parameters, and with them groups of processes, would hold themselves
            kept["norm"] = clip(longest).clone()
            keep(parameters, "clipped")
            return kept["norm"]

        return clipped

    def model_gradient(parameters: Parameters, current: Forward, grad_BT: Tensor) -> Gradient:
        gradient = make(parameters, current, grad_BT)
        kept["logp_BT"] = current.logp_BT.detach().clone()
        kept.update({f"full {name}": tensor.detach().clone() for name, tensor in parameters.full()})
        keep(parameters, "summed")
        parameters.clip = clipping(parameters, parameters.clip)  # type: ignore[method-assign]
        return gradient

    with mock.patch.object(update, "model_gradient", model_gradient):
        yield
    if ranks.is_rank_0:
        save_file(kept, file)
