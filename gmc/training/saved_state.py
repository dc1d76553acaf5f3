"""The tensors of a training state, and which of them are cut like a parameter when processes hold a part of each."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from gmc.errors import GmcError
from gmc.gradients.rule_calls import RuleCalls
from gmc.models import weights_hash
from gmc.parameters.base import Parameters
from gmc.store.checkpoints import PARTS, Checkpoint
from gmc.store.files import fsync_directory, fsync_file
from gmc.store.run_directory import RunDirectory
from gmc.training.optimizer_state import MOMENTS, SEPARATOR, optimizer_tensors
from gmc.training.update import Updater

RULE = "rule."
ANCHORS = "anchors."
OF_GRADIENT = re.compile(r".*\.(\d{5})")
"""A rule that keeps a gradient stores it as NAME.00000, NAME.00001, … in the order of its tensors, as gac does."""


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix before each key."""
    return {prefix + key: value for key, value in state.items()}


def unprefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries under a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def flush_logs(run: RunDirectory) -> None:
    """Make the logs durable that a checkpoint counts on."""
    for log in (run.used, run.metrics):
        if log.exists():
            fsync_file(log)
    fsync_directory(run.path)  # the logs' own names, which appending to them does not make durable


def training_state(updater: Updater, version: int) -> dict[str, dict[str, Tensor]]:
    """This process's tensors of the state after `version` updates, by part (weights, optimizer, estimator) and name."""
    rule = RuleCalls(updater.estimator, version)
    weights: dict[str, Tensor] = dict(updater.parameters.own)
    estimator = prefixed(RULE, rule.state_dict()) | prefixed(ANCHORS, updater.anchors.state_dict())
    return dict(zip(PARTS, (weights, optimizer_tensors(updater.optimizer), estimator), strict=True))


def parameter_of(parameters: Parameters, part: str, key: str, shape: torch.Size, *, own: bool) -> str | None:
    """The parameter whose rows a saved tensor has, None for one that every process holds alike.

    shape: of the tensor; own: whether that is this process's part of it, or the whole.
    """
    names = list(parameters.own)
    if part == "weights":
        return key
    if part == "optimizer":
        index, *_, what = key.split(SEPARATOR)
        return names[int(index)] if what in MOMENTS else None
    if key.startswith(ANCHORS):
        return key.partition(SEPARATOR)[2]
    if (kept := OF_GRADIENT.fullmatch(key)) is None or int(kept[1]) >= len(names):
        return None
    name = names[int(kept[1])]
    return name if shape == (parameters.own[name].shape if own else parameters.shape(name)) else None


def shared_state(updater: Updater, version: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The state flattened for a checkpoint that processes write together: tensors by PART/NAME, and whose rows they have.

    Raises `GmcError` when a rule keeps something that differs from rank to rank in another form than a gradient's.
    """
    parameters, tensors, rows = updater.parameters, dict[str, Tensor](), dict[str, str]()
    for part, state in training_state(updater, version).items():
        for key, tensor in state.items():
            tensors[f"{part}/{key}"] = tensor
            name = parameter_of(parameters, part, key, tensor.shape, own=True)
            if name is not None:
                rows[f"{part}/{key}"] = name
    alike = weights_hash({key: tensor for key, tensor in tensors.items() if key not in rows})
    if len(set(parameters.ranks.collect(alike))) > 1:
        raise GmcError(
            f"update {version}: estimator {updater.estimator.name} keeps parts of a gradient under names of its own, which "
            "cannot be saved from several ranks; keep the tensors as NAME.00000, NAME.00001, …, or use train.sharding=none"
        )
    return tensors, rows


def loaded_state(checkpoint: Checkpoint, parameters: Parameters) -> dict[str, dict[str, Tensor]]:
    """What `training_state` gave when the checkpoint was made, as this process holds it now. Errors as for `read_parts`."""
    if checkpoint.shared is None:
        whole = {"weights": checkpoint.weights, "optimizer": checkpoint.optimizer, "estimator": checkpoint.estimator}
        return {
            part: {key: _part(parameters, part, key, tensor) for key, tensor in tensors.items()}
            for part, tensors in whole.items()
        }

    def rows_of(key: str, shape: torch.Size) -> str | None:
        part, _, rest = key.partition("/")
        return parameter_of(parameters, part, rest, shape, own=False)

    tensors = parameters.read(checkpoint.shared, rows_of)
    return {part: unprefixed(f"{part}/", tensors) for part in PARTS}


def _part(parameters: Parameters, part: str, key: str, tensor: Tensor) -> Tensor:
    name = parameter_of(parameters, part, key, tensor.shape, own=False)
    return tensor if name is None or name not in parameters.own else parameters.part(name, tensor)
