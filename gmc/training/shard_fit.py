"""Do the shards on disk fit the run that wants to train on them, and how long do they last?"""

from gmc.config.settings import Settings
from gmc.delays.shards import ShardContents
from gmc.errors import UsageError
from gmc.models import LanguageModel, tokenizer_hash
from gmc.shards.reader import read_lengths, read_metadata
from gmc.shards.store import RolloutStore, StoredShard


def check_shards(store: RolloutStore, settings: Settings, model: LanguageModel) -> None:
    """Refuse the first shard that was sampled in another way than these settings say. Raises `UsageError` naming it."""
    vocabulary = tokenizer_hash(model.tokenizer)
    for stored in store.list():
        check_shard(stored, store.run_id, settings, vocabulary)


def check_shard(stored: StoredShard, run_id: str | None, settings: Settings, vocabulary: str) -> None:
    """Refuse one shard, as `check_shards` does; vocabulary: the tokenizer's hash; run_id: None for any."""
    rollout = settings.rollout
    metadata = read_metadata(stored.path)
    for what, found, wanted in (
        ("run id", metadata.run_id, metadata.run_id if run_id is None else run_id),
        ("tokenizer hash", metadata.tokenizer_hash, vocabulary),
        ("rollout.group_size", metadata.group_size, rollout.group_size),
        ("rollout.temperature", metadata.sampling.get("temperature"), str(rollout.temperature)),
        ("rollout.max_tokens", metadata.sampling.get("max_tokens"), str(rollout.max_tokens)),
    ):
        if found is not None and found != wanted:  # a shard of another tool need not name its sampling
            raise UsageError(
                f"{stored.path}: its {what} is {found}, this command's is {wanted}; give the setting that they were "
                "made with, or use another --run"
            )


def planned_updates(settings: Settings, store: RolloutStore) -> int:
    """The horizon N: as set; with `--delay shards` at most as many updates as the shards on disk serve."""
    if settings.delay != "shards":
        return settings.train.updates
    available = sum(shard.groups for shard in shard_contents(store)) // settings.rollout.prompts
    if not available:
        raise UsageError(f"{store.directory}: no rollouts for --delay shards; run gmc rollout first")
    return min(settings.train.updates, available)


def shard_contents(store: RolloutStore) -> list[ShardContents]:
    """Batch, version and number of groups of every shard on disk."""
    return [ShardContents(stored.batch, stored.version, len(read_lengths(stored.path))) for stored in store.list()]
