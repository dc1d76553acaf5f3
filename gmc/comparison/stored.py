"""Stored rollouts and a policy, brought together: the one batch that every rule is measured on."""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gmc.config.sampling import Sampling
from gmc.errors import DataError, UsageError
from gmc.models import LanguageModel, tokenizer_hash
from gmc.store.files import entries
from gmc.store.policies import INFO_FILE, read_policy_info
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout, ShardMetadata


@dataclass(frozen=True)
class StoredBatch:
    """Groups of one size from several shards of one run, and what they were sampled with.

    version: of the policy they are measured under, so that lag = version − a row's own version.
    """

    groups: list[list[Rollout]]
    metadata: ShardMetadata
    version: int
    logprob_kind: str
    paths: list[Path]

    @cached_property
    def sampling(self) -> Sampling:
        """The sampling values the shards record. Raises `DataError` when one is missing or damaged."""
        recorded = self.metadata.sampling
        try:
            stop: tuple[str, ...] = tuple(ast.literal_eval(recorded["stop"]))
            return Sampling(temperature=float(recorded["temperature"]), max_tokens=int(recorded["max_tokens"]), stop=stop)
        except (KeyError, ValueError, SyntaxError) as error:
            raise DataError(f"{self.paths[0]}: its record of the sampling values is unreadable ({error!r})") from error


def load_stored(
    source: Path, model: LanguageModel, *, shards: int, logprobs: str | None = None, policy_version: int | None = None
) -> StoredBatch:
    """The newest `shards` shard files under `source` (a run or a folder of shards) as one batch.

    logprobs: "trainer" or "engine", default trainer where stored. policy_version: of the model, default what its folder says,
    else the newest version in the shards. Raises `DataError` when there are no shards, they are of different runs or
    samplings, or the tokenizer is not the model's; `UsageError` for log-probs that are not stored or a policy older than its
    rollouts.
    """
    folder = source / "rollouts" if (source / "rollouts").is_dir() else source
    paths = entries(folder, "*.parquet")[-shards:]
    if not paths:
        raise UsageError(f"{folder}: no shards (*.parquet) in it; name a run or a folder of rollouts")
    wanted = tokenizer_hash(model.tokenizer)
    loaded = [read_shard(path, tokenizer_hash=wanted) for path in paths]
    first = loaded[0].metadata
    for shard in loaded[1:]:
        for field in ("run_id", "group_size", "sampling", "logprob_kinds"):
            if getattr(shard.metadata, field) != getattr(first, field):
                raise DataError(f"{shard.path}: its {field} differs from that of {paths[0].name}; compare one run at a time")
    kind = logprobs or ("trainer" if "trainer" in first.logprob_kinds else "engine")
    if kind not in first.logprob_kinds:
        raise UsageError(f"{paths[0]}: no {kind} log-probs stored, only {', '.join(first.logprob_kinds)}; change --logprobs")
    size = first.group_size
    groups = [shard.rollouts[start : start + size] for shard in loaded for start in range(0, len(shard.rollouts), size)]
    newest = max(group[0].policy_version for group in groups)
    version = _version_of(model.source) if policy_version is None else policy_version
    version = newest if version is None else version
    if version < newest:
        raise UsageError(
            f"{folder}: rollouts of policy version {newest} are newer than the policy ({version}); name a later one"
        )
    return StoredBatch(groups, first, version, kind, paths)


def _version_of(source: str) -> int | None:
    return read_policy_info(Path(source)).version if (Path(source) / INFO_FILE).is_file() else None
