"""Which policy of a run is exported: the newest, one by its version, or the best by held-out scores or evaluations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.errors import UsageError
from gmc.evaluation.results import Result, read_result
from gmc.evaluation.subjects import Candidate, run_candidates
from gmc.store.best import heldout_scores
from gmc.store.files import entries
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory

BEST, LATEST = "best", "latest"
TOO_HIGH = "a score that chose is too high on average, so judge it on other problems"


@dataclass(frozen=True)
class Chosen:
    """A published policy. version: updates made; how: why this one, for the card; results: its evaluations, and those of the
    model that the run started from, in the order of files."""

    path: Path
    version: int
    version_0_share: float | None
    how: str
    results: Sequence[Result]
    base_results: Sequence[Result]


def choose_policy(run: RunDirectory, policy: str) -> Chosen:
    """The policy that is meant. policy: "latest", "best" or a version.

    "best" goes by the held-out scores of training; where there are none, by the evaluations in the run. Raises `UsageError`
    where there is no policy, for a version that is not there, and for "best" with fewer than two policies evaluated alike.
    """
    results = _own_results(run)
    if policy == "all":
        raise UsageError("--policy all: one policy is exported; give latest, best or a version")
    candidate, how = _best(run, results) if policy == BEST else (run_candidates(run, policy)[0], "")
    if candidate.version is None:
        raise UsageError(f"{candidate.source}: its version is not known")
    if not how:
        how = "the newest policy of the run" if policy == LATEST else "chosen by its version"
    return Chosen(
        Path(candidate.source),
        candidate.version,
        candidate.version_0_share,
        how,
        [result for result in results if _version(result) == candidate.version],
        [result for result in results if _version(result) == 0 != candidate.version],
    )


def _own_results(run: RunDirectory) -> list[Result]:
    """The evaluations of this run's policies that lie in it."""
    found = [read_result(path) for path in entries(run.evals, "*.json") if not path.name.startswith("curve-")]
    return [result for result in found if result.record["model"]["run_id"] == run.run_id]


def _version(result: Result) -> int | None:
    version: int | None = result.record["model"]["version"]
    return version


def question_of(result: Result) -> str:
    """What an evaluation asked, as text: two of one text can be compared."""
    record = result.record
    return json.dumps([record["spec"], record["problems"]["content_hash"], record["problems"]["count"]], sort_keys=True)


def _best(run: RunDirectory, results: Sequence[Result]) -> tuple[Candidate, str]:
    scored = heldout_scores(read_metrics(run.metrics))
    if scored:
        how = f"the best of {len(scored)} by the score on held-out problems along the way; {TOO_HIGH}"
        return run_candidates(run, BEST)[0], how
    return _best_evaluated(run, results)


def _best_evaluated(run: RunDirectory, results: Sequence[Result]) -> tuple[Candidate, str]:
    """By the first score of the evaluation that most policies took, the earlier of equals."""
    policies = {candidate.version: candidate for candidate in run_candidates(run, "all")}
    asked: dict[str, dict[int, Result]] = {}
    for result in results:
        version = _version(result)
        if version is not None and version in policies:
            asked.setdefault(question_of(result), {})[version] = result
    by_version = max(asked.values(), key=len, default={})
    if len(by_version) < 2:
        raise UsageError(
            f"--policy best: {run.path} scored no held-out problems while it trained (gmc train --eval-every), and "
            f"{len(by_version)} of its {len(policies)} policies were evaluated; compare them first with gmc eval --run "
            f"{run.path} --policy all"
        )
    name = next(iter(next(iter(by_version.values())).estimates()))
    version = max(by_version, key=lambda each: (by_version[each].estimates()[name].value, -each))
    benchmark = by_version[version].record["benchmark"]
    return policies[version], f"the best of {len(by_version)} policies of the run by {name} on {benchmark}; {TOO_HIGH}"
