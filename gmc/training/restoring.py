"""Going on from a checkpoint: its state is loaded, and what the directory holds of later updates is taken back."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gmc.config.layers import flatten
from gmc.config.settings import settings_tree
from gmc.delays.registry import delay_class
from gmc.errors import DataError, UsageError
from gmc.gradients.rule_calls import RuleCalls
from gmc.rollouts.source import RolloutSource
from gmc.store.checkpoints import Checkpoint, prune_checkpoints
from gmc.store.files import make_directory
from gmc.store.logs import GroupRef, cut_log
from gmc.store.policies import set_aside_policies
from gmc.store.saved_settings import read_run_settings
from gmc.store.shards.launches import LaunchLog
from gmc.training.optimizer_state import load_optimizer_tensors
from gmc.training.place import Place
from gmc.training.saved_state import ANCHORS, RULE, loaded_state, unprefixed
from gmc.training.update import Updater

log = logging.getLogger(__name__)


DECIDING = (
    *("delay", "seed", "estimator.name", "optimizer.name", "model.source", "model.lora.rank"),
    *("rollout.prompts", "rollout.group_size", "train.start_version"),
)
"""Settings without whose values a checkpoint cannot be understood."""


@contextmanager
def _blaming_settings(place: Place) -> Iterator[None]:
    """What does not fit the checkpoint is wrong usage, not damage, where a setting given now contradicts the run's own."""
    try:
        yield
    except DataError as error:
        path = place.run.settings("train")
        saved = dict(flatten(read_run_settings(path))) if path.is_file() else {}
        now = dict(flatten(settings_tree(place.settings)))
        for key in DECIDING:
            if key in saved and saved[key] != now.get(key):
                raise UsageError(
                    f"--resume with {key} = {now.get(key)}: {place.run.path} was started with {saved[key]}; leave it out, and "
                    "--resume takes the run's own, or start another --run"
                ) from error
        raise


def restore_updater(checkpoint: Checkpoint, updater: Updater, place: Place) -> None:
    """Put weights, optimizer, rule and anchors where they stood.

    Raises `DataError` when they are another model's, `UsageError` where a setting of this command says so.
    """
    with _blaming_settings(place):
        restore(checkpoint, updater)


def restore_source(checkpoint: Checkpoint, source: RolloutSource, used: Sequence[Sequence[GroupRef]], place: Place) -> None:
    """Put the source of rollouts where it stood. Raises as `restore_updater`."""
    with _blaming_settings(place):
        source.load_attachments(checkpoint.attachments, str(checkpoint.path))
        try:
            source.load_state_dict(checkpoint.extra.get("source", {}), used)
        except DataError as error:
            if str(place.run.path) in str(error):
                raise
            raise DataError(f"{checkpoint.path}: {error}") from error


def restore(checkpoint: Checkpoint, updater: Updater) -> None:
    """`restore_updater` without a run. Raises `DataError`."""
    weights, state = updater.parameters.own, loaded_state(checkpoint, updater.parameters)
    shapes = {name: tuple(tensor.shape) for name, tensor in state["weights"].items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
        raise DataError(
            f"{checkpoint.path}: its weights are not those of {updater.model.source}; restore the folder from a copy"
        )
    with torch.no_grad():
        for name, parameter in weights.items():
            parameter.copy_(state["weights"][name])
    if not updater.parameters.finite(updater.parameters.tensors):
        raise DataError(
            f"{checkpoint.path}: its weights hold values that are no numbers, from a training that diverged; delete the folder "
            "to resume from the checkpoint before it, with a lower optimizer.learning_rate"
        )
    load_optimizer_tensors(updater.optimizer, state["optimizer"])
    kept = beside(updater.model.device, unprefixed(RULE, state["estimator"]))
    RuleCalls(updater.estimator, checkpoint.update).load_state_dict(kept)
    updater.anchors.load_state_dict(unprefixed(ANCHORS, state["estimator"]))


def beside(device: torch.device, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A rule's state where the model computes: checkpoints are read into the host's memory, and a gradient that a rule keeps
    meets those of the next updates. Single numbers stay: they go with tensors of any device."""
    return {key: tensor if tensor.ndim == 0 else tensor.to(device) for key, tensor in state.items()}


def rewind(place: Place, version: int) -> None:
    """Cut the logs back to `version` updates and set aside rollouts and policies of later versions."""
    run = place.run
    make_directory(run.checkpoints)  # from now on a run without this folder has lost it
    prune_checkpoints(run.checkpoints, place.settings.train.keep_checkpoints)
    for path in (run.used, run.metrics):
        if cut := cut_log(path, version):
            log.info("%s", cut)
    LaunchLog(run.launches).cut(version)
    generates = not delay_class(place.settings.delay).needs_existing_shards  # versions of imported shards are not this run's
    if generates and (moved := place.store.set_aside(version)):
        log.info("set aside %d rollout batches of versions after %d, which will be generated again", len(moved), version)
    if moved := set_aside_policies(run.policies, version):
        log.info("set aside %d published policies of versions after %d", len(moved), version)
