"""Do the shards on disk fit the run that wants to train on them, and how long do they last?"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.delays.base import DelayContext, ShardContents
from gmc.delays.registry import arguments_of, delay_class
from gmc.errors import UsageError
from gmc.models import LanguageModel, tokenizer_hash
from gmc.store.shards.reader import count_groups, read_metadata
from gmc.store.shards.rollout import FROM_FILE, UNKNOWN_VERSIONS, ShardMetadata
from gmc.store.shards.store import RolloutStore, StoredShard

WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling values under which a behavior log-prob is that of the whole distribution."""

FOREIGN = ("run id", "tokenizer hash", "vocabulary size")
"""What a shard must share with its run whatever the settings."""


class ForeignShardError(UsageError):
    """A shard of another run, or made with another tokenizer: no setting makes it fit."""


def check_shards(
    store: RolloutStore, settings: RunSettings, model: LanguageModel, initial_hash: str, *, used: Collection[int] = ()
) -> None:
    """Refuse the first shard that was sampled in another way than these settings say. Raises `UsageError` naming it.

    initial_hash: of the weights that every shard of version 0 must come from. used: batches that training has used up, which
    were checked then; one of them is checked again, for the settings may have changed since. In live mode what no setting
    makes fit is left to the source, which sets it aside.
    """
    check, live = ShardCheck(settings, model, initial_hash), delay_class(settings.delay).live
    stored = store.list()
    done = [each for each in stored if each.batch in used]
    for each in [*done[-1:], *(each for each in stored if each.batch not in used)]:
        try:
            check(each, store.run_id)
        except ForeignShardError:
            if not live:
                raise


class ShardCheck:
    """Refuses shards that this run cannot train on, one by one. Arguments as for `check_shards`."""

    def __init__(self, settings: RunSettings, model: LanguageModel, initial_hash: str) -> None:
        rollout = settings.rollout
        self._initial_hash = initial_hash
        self._start_version = settings.train.start_version
        self._replays = delay_class(settings.delay).needs_existing_shards
        self._rewards = tuple(settings.reward.parts)
        self._resample_equal = rollout.resample_equal
        self._environment = rollout.environment
        self._wanted: dict[str, Any] = {
            "tokenizer hash": tokenizer_hash(model.tokenizer),
            "vocabulary size": model.vocabulary_size,
            "rollout.group_size": rollout.group_size,
        }
        sampling = {"temperature": rollout.temperature, "max_tokens": rollout.max_tokens, **WHOLE_DISTRIBUTION}
        self._sampling = {name: float(value) for name, value in sampling.items() if value is not None}

    def __call__(self, stored: StoredShard, run_id: str | None) -> None:
        """Raise `UsageError` naming the file and what differs. run_id: None for a shard of any run."""
        metadata = read_metadata(stored.path)
        found = {
            "run id": metadata.run_id,
            "tokenizer hash": metadata.tokenizer_hash,
            "vocabulary size": metadata.vocabulary_size,
            "rollout.group_size": metadata.group_size,
        }
        wanted = self._wanted | {"run id": metadata.run_id if run_id is None else run_id}
        if self._start_version >= 0 and UNKNOWN_VERSIONS in metadata.extra:
            raise UsageError(
                f"{stored.path}: which version sampled it was not said when it was imported, so --start-version "
                f"{self._start_version} has nothing to count from; leave it out, or import again with --policy-version"
            )
        if stored.version == self._initial_version(metadata) and metadata.weights_hash:  # imported ones need not know it
            found["weights hash"], wanted["weights hash"] = metadata.weights_hash, self._initial_hash
        for what, value in found.items():
            if value != wanted[what]:
                kind = ForeignShardError if what in FOREIGN else UsageError
                raise _misfit(stored.path, what, value, wanted[what], kind)
        if metadata.rewards and metadata.rewards != self._rewards:  # a shard of another tool brings its rewards
            raise UsageError(
                f"{stored.path}: rewarded by {' + '.join(metadata.rewards)}, this command's reward is "
                f"{' + '.join(self._rewards)}; give --reward as it was, or start anew with --overwrite or another --run"
            )
        if metadata.environment not in (None, self._environment):  # None: of another tool, or of gmc before 0.3
            raise UsageError(
                f"{stored.path}: made in the environment {metadata.environment}, this command's is {self._environment}; give "
                "--environment as it was, or start anew with --overwrite or another --run"
            )
        if metadata.resample_equal not in (None, self._resample_equal):  # None: of another tool, or of gmc before 0.3
            raise _misfit(stored.path, "rollout.resample_equal", metadata.resample_equal, self._resample_equal)
        for name, value in self._sampling.items():
            given = metadata.sampling.get(name)  # a shard of another tool need not name its sampling
            if given is not None and _number(given) != value:
                raise _misfit(stored.path, f"rollout.{name}", given, f"{value:g}")

    def _initial_version(self, metadata: ShardMetadata) -> int | None:
        """The version in this shard that the run's initial weights are, None where that is not known."""
        if self._start_version >= 0:
            return self._start_version
        return None if self._replays and FROM_FILE in metadata.extra else 0


def _misfit(path: Path, what: str, found: object, wanted: object, kind: type[UsageError] = UsageError) -> UsageError:
    cure = "move it away" if kind is ForeignShardError else "give the setting that they were made with"
    return kind(
        f"{path}: its {what} is {str(found)[:16]}, this command's is {str(wanted)[:16]}; {cure}, or start anew with "
        "--overwrite or another --run"
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def planned_updates(settings: RunSettings, store: RolloutStore) -> int:
    """The horizon N: as set; where nothing is generated, at most as many updates as the shards on disk serve."""
    delay, wanted = delay_class(settings.delay), settings.train.updates
    if delay.generates:
        return wanted
    rollout, shards = settings.rollout, shard_contents(store, start_version(settings, store))
    context = DelayContext(rollout.prompts, rollout.group_size, settings.seed, wanted, shards)
    available = delay.horizon(arguments_of(settings.delay), context)
    if available == 0:
        raise UsageError(f"{store.directory}: no rollouts for --delay {settings.delay}; run gmc rollout first")
    return wanted if available is None else min(wanted, available)


def start_version(settings: RunSettings, store: RolloutStore) -> int | None:
    """Which version of the shards the run's initial weights are: as set, else 0; None where shards of others do not tell."""
    if settings.train.start_version >= 0:
        return settings.train.start_version
    if not delay_class(settings.delay).needs_existing_shards:
        return 0
    return None if any(FROM_FILE in read_metadata(stored.path).extra for stored in store.list()) else 0


def shard_contents(store: RolloutStore, first: int | None) -> list[ShardContents]:
    """Batch, version and number of groups of every shard on disk.

    Versions count from `first`, that of the run's initial weights: those before it are negative. None: they are not known, and
    all count as the initial one, so that nothing is refused for being later.
    """
    return [
        ShardContents(stored.batch, 0 if first is None else stored.version - first, count_groups(stored.path))
        for stored in store.list()
    ]
