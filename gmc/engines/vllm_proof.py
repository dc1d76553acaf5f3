"""Does every weight inside a vLLM worker equal the one it was given? A comparison of the numbers themselves.

Log-probs cannot tell: in bfloat16 their rounding hides a hundred small updates. Each parameter of vLLM's network is compared
bit for bit with the given tensors, cast and cut as vLLM holds them: query, key and value in one matrix, gate and up in one,
a slice of each for every tensor-parallel rank. A layer that keeps only a packed copy is asked for columns of its matrix by
one-hot input, whose product with a matrix has no rounding. Nothing here imports vLLM, so that it is tested without.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gmc.errors import GmcError

log = logging.getLogger(__name__)

COLUMNS = 64
"""Columns that a packed layer is asked for at each hand-over; another choice each time."""


def differing_weights(network: nn.Module, given: Mapping[str, Tensor], seed: int) -> dict[str, Any]:
    """Compare a vLLM network with `given`, Hugging Face names to whole tensors (tied heads included or not).

    Returns `wrong`, a list of (module, share of the compared numbers that differ), worst first; `checked` and `total`, numbers
    compared bit for bit and numbers of the network on this rank. What vLLM arranges in a way unknown here is not compared, and
    `checked` is then below `total`. seed: chooses the columns of packed layers.
    """
    generator = torch.Generator().manual_seed(seed)
    wrong, checked, total = [], 0, 0
    for name, module in network.named_modules():
        for actual, expected in _pairs_of(module, _expected(network, name, module, given), generator):
            total += actual.numel()
            if expected is None:
                continue
            cast = expected.to(actual.dtype).to(actual.device)
            checked += actual.numel()
            if not torch.equal(actual, cast):
                wrong.append((name, float((actual != cast).double().mean())))
    return {"wrong": sorted(wrong, key=lambda pair: -pair[1]), "checked": checked, "total": total}


def compared_share(counts: Sequence[tuple[int, int]], whose: str, before: float | None) -> float:
    """The share of all workers' numbers that a proof compared.

    counts: `checked` and `total` of each worker; whose: names the engine in messages; before: the share of the hand-over
    before, None at first. A smaller one is warned of, so an engine warns once. Raises `GmcError` when a worker compared
    nothing: its proof, which finds no difference then, would prove nothing.
    """
    for checked, total in counts:
        if checked == 0:
            raise GmcError(
                f"{whose}: none of the {total} numbers that it holds could be compared with the weights that it was given, "
                "because it arranges them in a way unknown here; use --engine transformers"
            )
    share = sum(checked for checked, _ in counts) / sum(total for _, total in counts)
    if share < (1 if before is None else before):
        log.warning(
            "%s: %.2f %% of its numbers are compared with the weights given, the others are not proved", whose, 100 * share
        )
    return share


def members(name: str, packed: Mapping[str, list[str]]) -> list[str]:
    """The Hugging Face modules that a vLLM module holds: qkv_proj holds q_proj, k_proj and v_proj."""
    parent, _, last = name.rpartition(".")
    return [f"{parent}.{member}" if parent else member for member in packed.get(last, [last])]


def _expected(network: nn.Module, name: str, module: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """The given tensors for each own parameter of `module`, as this rank holds them; None where that is not known."""
    packed = getattr(network, "packed_modules_mapping", {})
    found: dict[str, Tensor | None] = {}
    for key, parameter in module.named_parameters(recurse=False):
        parts = [given.get(f"{member}.{key}") for member in members(name, packed)]
        whole = [part for part in parts if part is not None]
        found[key] = _cut(module, parameter, whole) if len(whole) == len(parts) else None
    return found


def _cut(module: Any, parameter: nn.Parameter, parts: list[Tensor]) -> Tensor | None:
    """This rank's slice of each part, one below the other; None when the result would not be of the parameter's shape."""
    if hasattr(module, "shard_indices"):  # an embedding or a head: rows beyond the vocabulary are vLLM's padding
        rows = module.shard_indices
        return parts[0][rows.org_vocab_start_index : rows.org_vocab_end_index] if len(parts) == 1 else None
    ranks, rank = int(getattr(module, "tp_size", 1)), int(getattr(module, "tp_rank", 0))
    emptied = parameter.numel() == 0
    dim = _divided(module) if ranks > 1 else None
    if dim is None or dim >= parts[0].dim():
        whole = torch.cat(parts)
        return whole if emptied or whole.shape == parameter.shape else None
    slices = []
    for index, part in enumerate(parts):
        copies = int(getattr(module, "num_kv_head_replicas", 1)) if index else 1  # key and value heads may be fewer than ranks
        slices.append(part.chunk(ranks // copies, dim)[rank // copies])
    cut = torch.cat(slices, 0)
    return cut if emptied or cut.shape == parameter.shape else None


def _divided(module: Any) -> int | None:
    """The dimension of a linear layer's matrix that is dealt to ranks, read from the layer: a packed weight has no shape."""
    for dim, side in enumerate(("output", "input")):
        if getattr(module, f"{side}_size_per_partition", None) != getattr(module, f"{side}_size", None):
            return dim
    return None


def _pairs_of(
    module: Any, expected: Mapping[str, Tensor | None], generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """What the module holds beside what it should hold, a parameter at a time, and what its packed copy says."""
    for key, parameter in module.named_parameters(recurse=False):
        wanted = expected[key]
        actual = parameter.detach()
        if actual.numel():
            if wanted is not None and wanted.shape != actual.shape:
                actual = actual[: wanted.shape[0]]
            yield actual, wanted
        if key == "weight" and hasattr(module, "cpu_linear") and wanted is not None and _fits(module, wanted):
            yield _columns(module, wanted, generator)


def _fits(module: Any, weight: Tensor) -> bool:
    """Whether a packed layer takes input as wide as `weight`; a kernel that was handed another width would read beyond it."""
    if hasattr(module, "shard_indices"):
        return weight.shape[1] == int(module.embedding_dim)
    shape = (int(module.output_size_per_partition), int(module.input_size_per_partition))
    return tuple(weight.shape) == shape


def _columns(module: Any, weight: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Columns of the matrix that a packed layer applies, and the same of `weight`: [columns, output] each."""
    width = weight.shape[1]
    chosen = torch.randperm(width, generator=generator)[:COLUMNS]
    one_hot = nn.functional.one_hot(chosen, width).to(module.params_dtype)
    with torch.inference_mode():
        applied = module.quant_method.apply(module, one_hot)
    return applied[:, : weight.shape[0]], weight[:, chosen].T
