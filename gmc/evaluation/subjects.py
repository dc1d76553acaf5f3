"""Which policies an evaluation looks at: a model, or the newest, one or all of a run, and the model the run started from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.delays.version_0 import VERSION_0_SHARE
from gmc.errors import DataError, UsageError
from gmc.store.best import best_of, heldout_scores
from gmc.store.logs import read_metrics
from gmc.store.policies import CURE, INFO_FILE, belongs_to_run, intact_policy, list_policies, read_policy_info
from gmc.store.run_directory import RunDirectory, policy_name

if TYPE_CHECKING:
    from gmc.models import LanguageModel

BASE_LABEL = "base"


@dataclass(frozen=True)
class Candidate:
    """A policy to load.

    source: what `load_model` takes; version: its policy version in a run, None outside of one; run_id: the run's, "" outside;
    version_0_share: of the learning rate summed over the updates that made it, the share on rollouts of version 0, where known.
    """

    label: str
    source: str
    version: int | None = None
    run_id: str = ""
    version_0_share: float | None = None

    def require_intact(self) -> None:
        """Raise `DataError` for a published policy whose files are not those that were published, or that lost its record.

        A folder of somebody else's, without a record, is taken as it is.
        """
        path = Path(self.source)
        if not belongs_to_run(path) and not (path / INFO_FILE).is_file():
            return
        info = intact_policy(path)
        if self.version is not None and (info.version, info.run_id) != (self.version, self.run_id):
            raise DataError(
                f"{path / INFO_FILE}: the record of version {info.version} of run {info.run_id}, where version "
                f"{self.version} of run {self.run_id} should be; restore the folder from a copy"
            )

    def subject(self, model: "LanguageModel", compute_dtype: str) -> "Subject":
        """The same policy, loaded: with the hashes of what was really loaded."""
        from gmc.models import policy_hash, tokenizer_hash

        loaded = policy_hash(model), tokenizer_hash(model.tokenizer)
        self._require_published(model, *loaded)
        return Subject(
            **vars(self),
            weights_hash=loaded[0],
            tokenizer_hash=loaded[1],
            compute_dtype=compute_dtype,
            context_tokens=model.context_tokens,
        )

    def _require_published(self, model: "LanguageModel", weights: str, tokenizer: str) -> None:
        """Raise `DataError` when what was loaded is not what its record names. Packed weights depend on the machine."""
        path = Path(self.source)
        if not (path / INFO_FILE).is_file():
            return
        info = read_policy_info(path)
        for what, named, found in (("weights", info.weights_hash, weights), ("tokenizer", info.tokenizer_hash, tokenizer)):
            if named and found != named and not (what == "weights" and model.quantized):
                raise DataError(
                    f"{path}: the hash of its {what} is {found[:12]}, its record {INFO_FILE} says {named[:12]}; {CURE}"
                )


@dataclass(frozen=True, kw_only=True)
class Subject(Candidate):
    """The policy under test. Hashes as in `gmc.models`; compute_dtype: type of its matrix products; context_tokens: longest
    prompt plus response."""

    weights_hash: str
    tokenizer_hash: str
    compute_dtype: str = "float32"
    context_tokens: int | None = None


def model_candidate(source: str) -> Candidate:
    """A model by name or folder; the folder of a published policy keeps its version and run."""
    path = Path(source)
    if (path / INFO_FILE).is_file():
        info = read_policy_info(path)
        return Candidate(policy_name(info.version), source, info.version, info.run_id)
    label = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in path.resolve().name or source)
    return Candidate(label, source)


def run_candidates(run: RunDirectory, policy: str) -> list[Candidate]:
    """The policies of a run that `policy` names: "latest", "best", a version, or "all", oldest first.

    Raises `UsageError` when the run has none, or not that one.
    """
    records = read_metrics(run.metrics)
    shares = [record.get(VERSION_0_SHARE) for record in records]
    found = [
        Candidate(
            policy_name(version), str(path), version, run.run_id, shares[version - 1] if 0 < version <= len(shares) else None
        )
        for version, path in list_policies(run.policies)
    ]
    if not found:
        raise UsageError(
            f"{run.path}: no policy is published there yet; train first (gmc train), or evaluate a model with --model embedded"
        )
    if policy == "best":
        policy = str(_best_version(run, records))
    if policy == "all":
        return found
    if policy == "latest":
        return found[-1:]
    chosen = [candidate for candidate in found if policy.isdecimal() and candidate.version == int(policy)]
    if not chosen:
        versions = ", ".join(str(candidate.version) for candidate in found)
        raise UsageError(f"--policy {policy}: {run.path} has the versions {versions} (or latest, best, or all)")
    return chosen


def _best_version(run: RunDirectory, records: Sequence[Mapping[str, Any]]) -> int:
    best = best_of(heldout_scores(records))
    if best is None:
        raise UsageError(
            f"--policy best: {run.path} scored no held-out problems while it trained; train with --eval-every 50, or compare "
            "its policies with --policy all"
        )
    return best.version


def base_candidate(run: RunDirectory) -> Candidate:
    """The model that the run started from."""
    for version, path in list_policies(run.policies):
        if version == 0:
            return Candidate(BASE_LABEL, str(path), 0, run.run_id)
    return Candidate(BASE_LABEL, run.record.model, 0, run.run_id)
