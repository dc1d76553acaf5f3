"""A result on disk: NAME.parquet with every sample and, written last, NAME.json with the scores and every setting.

While an evaluation runs, its samples lie as parts in NAME.parts/ beside its description, so a killed one can go on.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gmc.errors import DataError, UsageError
from gmc.evaluation.rewarded import Rewarded
from gmc.evaluation.samples import Sample, join_parts, read_samples, write_part
from gmc.evaluation.spec import differences, fingerprint
from gmc.evaluation.statistics import Estimate
from gmc.store.files import read_json, write_json
from gmc.store.formats import read_format
from gmc.store.records import checked
from gmc.store.temporary import remove_leftovers

DESCRIPTION = "description.json"
CURE = "restore it from a copy, or delete it and evaluate again"


@dataclass(frozen=True)
class Counts:
    """What a set of responses looked like. Shares are of all responses of that decoding; lengths are in tokens."""

    responses: int
    truncated_share: float
    unparseable_share: float
    timeouts: int
    crashes: int
    mean_response_tokens: float


@dataclass(frozen=True)
class _Model:
    label: str
    source: str
    version: int | None
    weights_hash: str
    tokenizer_hash: str
    run_id: str
    version_0_share: float | None = None


@dataclass(frozen=True)
class _Problems:
    source: str
    count: int
    content_hash: str
    content_hash_matches: bool | None


@dataclass(frozen=True)
class _Rewarded:
    labels: list[str]
    binary: bool
    binary_parts: list[bool]


@dataclass(frozen=True)
class _Spec:
    benchmark: str
    template_id: str
    samples: int
    greedy: bool
    temperature: float
    top_p: float
    max_tokens: int
    pass_k: list[int]
    seed: int
    reward: list[str]


@dataclass(frozen=True)
class _Record:
    """What is read of the JSON of a result, beside its format."""

    benchmark: str
    scores: dict[str, Estimate]
    outcomes: dict[str, Counts]
    model: _Model
    spec: _Spec
    problems: _Problems
    versions: dict[str, str]
    notes: list[str]
    rewarded: _Rewarded | None = None


_RECORD = TypeAdapter(_Record)


@dataclass(frozen=True)
class Result:
    """A finished evaluation: where it lies and what its JSON says."""

    scores_path: Path
    record: Mapping[str, Any]

    @property
    def samples_path(self) -> Path:
        """The Parquet file of every sample."""
        return self.scores_path.with_suffix(".parquet")

    @property
    def name(self) -> str:
        """Benchmark and model, for people."""
        return f"{self.record['benchmark']}, {self.record['model']['label']}"

    @property
    def rewarded(self) -> Rewarded:
        """What its responses were rewarded by."""
        return Rewarded.read(self.record.get("rewarded"))

    def estimates(self) -> dict[str, Estimate]:
        """The scores by name."""
        return {name: Estimate(**values) for name, values in self.record["scores"].items()}

    def samples(self) -> list[Sample]:
        """Every sample."""
        return read_samples(self.samples_path)


def read_result(path: Path) -> Result:
    """A result by its JSON, its Parquet file, or their common name.

    Raises `UsageError` when there is none, `DataError` when it is unfinished, damaged or newer.
    """
    scores_path = path.with_suffix(".json") if path.suffix in (".json", ".parquet") else path.parent / f"{path.name}.json"
    if not scores_path.is_file():
        raise UsageError(f"{scores_path}: no such result; gmc eval writes them into the folder evals of a run")
    record = read_json(scores_path, CURE)
    if not isinstance(record, dict) or "benchmark" not in record or not isinstance(record.get("spec"), dict):
        raise DataError(f"{scores_path}: not a result of gmc eval; give the JSON file of one")
    read_format(scores_path, record)
    if "strict" in record["spec"]:  # gmc 0.1, which had the reward math and this setting of it
        record["spec"] |= {"reward": [f"math(strict={record['spec'].pop('strict')})"], "reward_code": []}
    record["spec"].setdefault("environment", "single")  # before 0.3 there was no other
    found = checked(_RECORD, record, scores_path, CURE)
    missing = {"greedy" if name.startswith("greedy") else "sampled" for name in found.scores} - found.outcomes.keys()
    if missing or any(not 1 <= k <= found.spec.samples for k in found.spec.pass_k):
        wrong = f"outcomes.{min(missing)} is missing" if missing else f"spec.pass_k is {found.spec.pass_k}"
        raise DataError(f"{scores_path}: damaged ({wrong}); {CURE}")
    return Result(scores_path, record)


class PartialResult:
    """An evaluation in progress, part by part.

    directory: where results lie; description: see `gmc.evaluation.spec.description`. With `resume` the parts of the same
    description are kept; without, they are thrown away. Raises `UsageError` when `resume` finds only parts of an evaluation
    that was described otherwise.
    """

    def __init__(self, directory: Path, description: Mapping[str, Any], *, resume: bool) -> None:
        self.description = description
        self.stem = f"{description['spec']['benchmark']}-{description['model']['label']}"
        self.name = f"{self.stem}-{fingerprint(description)}"
        self.scores_path = directory / f"{self.name}.json"
        self.parts = directory / f"{self.name}.parts"
        remove_leftovers(directory)
        self._reuse = resume and self.scores_path.exists()
        if self._reuse:
            return
        if not resume:
            shutil.rmtree(self.parts, ignore_errors=True)
        elif not self.parts.exists():
            self._refuse_others(directory)
        if not self.parts.exists():
            write_json(self.parts / DESCRIPTION, description)

    def finished(self) -> list[Sample] | None:
        """The samples of an evaluation that `resume` found finished, None when there is work left."""
        return read_samples(self.scores_path.with_suffix(".parquet")) if self._reuse else None

    def rescore(self, record: Mapping[str, Any]) -> Result:
        """Write a finished evaluation's scores again (other k of pass@k may be asked of the same samples)."""
        write_json(self.scores_path, record)
        shutil.rmtree(self.parts, ignore_errors=True)
        return Result(self.scores_path, record)

    def has(self, chunk: int) -> bool:
        """Whether this chunk's samples are on disk."""
        return self._part(chunk).exists()

    def write(self, chunk: int, samples: list[Sample]) -> None:
        """Keep one chunk's samples."""
        write_part(self._part(chunk), samples)

    def read(self, chunk: int) -> list[Sample]:
        """One chunk's samples."""
        return read_samples(self._part(chunk))

    def finish(self, chunks: int, record: Mapping[str, Any]) -> Result:
        """Join the parts, write the scores, remove the parts."""
        result = Result(self.scores_path, record)
        join_parts([self._part(chunk) for chunk in range(chunks)], result.samples_path, dict(self.description))
        write_json(result.scores_path, record)
        shutil.rmtree(self.parts)
        return result

    def _part(self, chunk: int) -> Path:
        return self.parts / f"part-{chunk:06d}.parquet"

    def _refuse_others(self, directory: Path) -> None:
        for other in sorted(directory.glob(f"{self.stem}-????????.parts")):
            found = "; ".join(differences(read_json(other / DESCRIPTION), self.description)[:5])
            raise UsageError(
                f"--resume: the unfinished evaluation {other} was made otherwise ({found}); give the same options, "
                "or leave out --resume"
            )
