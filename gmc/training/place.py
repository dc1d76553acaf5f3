"""What the steps of opening a session share."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from gmc.config.settings import RunSettings
from gmc.models import LanguageModel
from gmc.ranks import Ranks
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import RolloutStore


@dataclass(frozen=True)
class Place:
    """The run, its settings and its model in this process.

    initial_hash: of the weights that every shard of version 0 must come from; resources: closes what is opened; stopping:
    whether this process was asked to stop; ranks: the processes that train together.
    """

    run: RunDirectory
    settings: RunSettings
    model: LanguageModel
    store: RolloutStore
    initial_hash: str
    resources: ExitStack
    stopping: Callable[[], bool]
    ranks: Ranks
