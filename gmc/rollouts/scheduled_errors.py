"""What is said where a run's shards, checkpoint or used.jsonl are not what its delay launches and takes."""

from collections.abc import Sequence
from pathlib import Path

from gmc.errors import DataError, UsageError
from gmc.store.shards.store import StoredShard


def other_delay(spec: str, why: str = "") -> DataError:
    """For a checkpoint that does not hold the state of the delay `spec`."""
    return DataError(
        f"the checkpoint was made under another delay than --delay {spec}{why}; leave --delay out, and --resume "
        "takes the run's own"
    )


def disagreement(spec: str, update: int) -> DataError:
    """For an update that used other groups than the delay gives it."""
    return DataError(
        f"used.jsonl, update {update}: --delay {spec} launches or takes other groups than the run did; resume with "
        "the delay, seed and shards that it was started with"
    )


def other_version(spec: str, stored: StoredShard, update: int) -> DataError:
    """For a shard that another policy version made than the one that is to launch its batch, `update`."""
    return DataError(
        f"{stored.path}: --delay {spec} wants batch {stored.batch} from policy version {update}, not "
        f"{stored.version}; train on what exists with --delay shards, or use another run directory"
    )


def more_batches(spec: str, directory: Path, surplus: Sequence[int], update: int, first: int | None) -> UsageError:
    """For shards of batches that the delay has not launched by `update`. first: how many it starts from, None if unknown."""
    starts = "response lengths decide how many it starts from" if first is None else f"it starts from {first}"
    cure = (
        f"Import as many as are needed into a new run with --run NEW --rollouts {directory.parent}, use a longer delay, or "
        "train on all of them with --delay shards"
    )
    return UsageError(
        f"{directory}: {len(surplus)} rollout batches (from number {surplus[0]}) are more than --delay {spec} has launched by "
        f"update {update} ({starts}). " + ("Move them elsewhere, and --resume goes on" if update else cure)
    )
