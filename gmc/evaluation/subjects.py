"""Which policies an evaluation looks at: a model, or the newest, one or all of a run, and the model the run started from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.delays.version_0 import VERSION_0_SHARE
from gmc.errors import UsageError
from gmc.store.best import best_of, heldout_scores
from gmc.store.logs import read_metrics
from gmc.store.policies import INFO_FILE, list_policies, read_policy_info
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

    def subject(self, model: "LanguageModel", compute_dtype: str) -> "Subject":
        """The same policy, loaded: with the hashes of what was really loaded."""
        from gmc.models import policy_hash, tokenizer_hash

        return Subject(
            **vars(self),
            weights_hash=policy_hash(model),
            tokenizer_hash=tokenizer_hash(model.tokenizer),
            compute_dtype=compute_dtype,
            context_tokens=model.context_tokens,
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
