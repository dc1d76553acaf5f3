"""A follower's weights: of a new policy, only the files are read that differ from those of the one before."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gmc.errors import DataError
from gmc.models import LanguageModel, load_model

log = logging.getLogger(__name__)


class PublishedWeights:
    """Puts published policies into `model`, in place. read: names of the files that the last policy was read from."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._held: dict[str, str] = {}
        self.read: list[str] = []

    def take(
        self,
        folder: Path,
        digests: Mapping[str, str],
        ready: Callable[[], None] = lambda: None,
        sent: Callable[[], bool] | None = None,
    ) -> None:
        """Take the policy in `folder`, whose files of weights have these digests; {} when it does not say.

        ready: returns when the weights of now may go; called when all is read. sent: puts the policy into the model's own
        weights by another way than the folder, and says whether it did; after a False they may hold anything.

        Files with the digests of those that were taken last are not read. A policy whose files hold other tensors than the
        network has (an adapter, names that a library changes when it loads) is loaded whole. Raises `DataError` or `OSError`
        when it cannot be read; the weights are then those from before, but where `sent` said False.
        """
        try:
            names = {file: _names(folder / file) for file in digests}
            own = self._model.weights()
            if self._model.adapter is None and set[str]().union(*names.values()) == own.keys():
                changed = [file for file in sorted(digests) if self._held.get(file) != digests[file]]
                if changed and sent is not None:
                    ready()
                    self._held = {}  # until all of it has come, the weights may be anything
                    if sent():
                        self._held, self.read = dict(digests), []
                        return
                    changed = sorted(digests)
                given = {name: tensor for file in changed for name, tensor in _tensors(folder / file).items()}
            else:
                published = load_model(folder).weights()
                changed, given = sorted(digests), {name: published[name] for name in own}
        except SafetensorError as error:
            raise DataError(f"{folder}: its weights cannot be read ({error})") from error
        ready()
        with torch.no_grad():
            for name, tensor in given.items():
                own[name].copy_(tensor)
        self._held, self.read = dict(digests), changed
        log.debug("%s: %d of %d files of weights were read", folder, len(changed), len(digests))

    def forget(self) -> None:
        """Read every file of the next policy: what was taken last is not what its record says."""
        self._held = {}


def _names(file: Path) -> set[str]:
    with safe_open(file, framework="pt") as opened:
        return set(opened.keys())


def _tensors(file: Path) -> dict[str, Tensor]:
    with safe_open(file, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
