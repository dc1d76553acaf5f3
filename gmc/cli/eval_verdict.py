"""The last lines of `gmc eval --base`: what training changed, in one sentence, how stale its data was, and what to try next."""

from collections.abc import Sequence

from gmc.cli.training_summary import mean_of
from gmc.errors import GmcError
from gmc.evaluation.compare import Comparison
from gmc.store.logs import read_metrics
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import read_run_settings


def verdict_lines(comparisons: Sequence[Comparison], run: RunDirectory) -> list[str]:
    """One sentence a benchmark on its first score, how the run was trained, and what to try. Empty for an untrained run."""
    if not comparisons or not (training := _training(run, comparisons[0].second.record["model"]["version"])):
        return []
    return [
        *map(_sentence, comparisons),
        training,
        "next: another seed (gmc train --seed 1 --run ...), rule (gmc estimators) or delay (gmc delays); "
        "gmc lab sweep compares them over seeds",
    ]


def _sentence(comparison: Comparison) -> str:
    score, scale = comparison.scores[0], 100 if comparison.scores[0].binary else 1
    before, after, difference = score.first.value * scale, score.second.value * scale, score.difference
    low, high = difference.low * scale, difference.high * scale
    digits, unit = (1, " %") if score.binary else (3, "")
    verb = "raised" if low > 0 else "lowered" if high < 0 else "did not clearly change"
    points = " points" if score.binary else ""
    return (
        f"{comparison.first.record['benchmark']}: training {verb} {score.name}: {before:.{digits}f}{unit} before, "
        f"{after:.{digits}f}{unit} after, {difference.value * scale:+.{digits}f}{points} "
        f"(95 % interval over problems {low:+.{digits}f} to {high:+.{digits}f})"
    )


def _training(run: RunDirectory, version: int) -> str:
    """How this version of the run's policy was trained, empty for one that was not, or whose logs cannot be read. The run may
    be training on, and be further than what was scored."""
    try:
        settings, metrics = read_run_settings(run.settings("train")), read_metrics(run.metrics)[:version]
    except (GmcError, OSError):
        return ""
    delay = mean_of(metrics, "delay/mean")
    if delay is None:
        return ""
    rule, law = settings.get("estimator", {}).get("name"), settings.get("delay")
    return f"trained by {rule} at --delay {law} for {len(metrics)} updates, on rollouts {delay:.1f} updates old on average"
