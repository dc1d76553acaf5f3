"""gmc as a library: what the commands do, from Python. `import gmc` costs nothing; each name here is loaded on first use.

    run = gmc.Run("runs/demo")
    gmc.rollout(run, batches=4)
    gmc.train(run, estimator="gmc", delay=64, updates=100, on_update=print)
    scores = gmc.evaluate(run)
    frame = gmc.read_rollouts(run)

Settings are given as the commands' flags (`group_size=8`), by dotted key (`settings={"optimizer.beta1": 0.8}`) and by recipe.
Errors are those of the commands: `gmc.GmcError`, one line that names what is wrong and the cure. Messages go to the logger
"gmc".
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.config import RunSettings
from gmc.config.flags import settings_of_flags
from gmc.resolving.earlier import earlier_settings
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory

if TYPE_CHECKING:
    import pandas

    from gmc.evaluation.run import Evaluation
    from gmc.export.plan import Plan
    from gmc.generation.filling import RolloutSummary
    from gmc.generation.importing import ImportSummary
    from gmc.lab.report import Report
    from gmc.lab.sweep import SweepOutcome
    from gmc.training.run import TrainingResult


class Run:
    """A run directory, which need not exist yet. path: where it is or will be."""

    def __init__(self, path: "str | os.PathLike[str] | Run") -> None:
        self.path: Path = path.path if isinstance(path, Run) else Path(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def directory(self) -> RunDirectory:
        """Every path in it, its id and its lock. Raises `UsageError` when there is no run yet."""
        return RunDirectory.open(self.path)

    def metrics(self) -> "pandas.DataFrame":
        """What every update logged: one row an update, see docs/metrics.md."""
        import pandas

        from gmc.store.logs import read_metrics

        return pandas.DataFrame(read_metrics(self.directory.metrics))


def rollout(
    run: "Run | str | os.PathLike[str]",
    *,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_responses: Callable[[int], None] | None = None,
    **flags: Any,
) -> "RolloutSummary":
    """Sample, judge and store batches of rollouts with the initial policy: `gmc rollout`.

    flags: the command's, such as batches=4 or model="folder"; settings: any other by dotted key; on_responses: called with the
    number of newly finished responses. Raises `UsageError` for an unknown flag or setting, `GmcError` for what cannot be done.
    """
    from gmc.generation.filling import fill_run

    path = Run(run).path
    resolved = _resolved(path, recipe, settings, flags, command="rollout", resume=resume, overwrite=overwrite)
    advance = on_responses or (lambda count: None)
    return fill_run(path, resolved, resume=resume, overwrite=overwrite, advance=advance)


def train(
    run: "Run | str | os.PathLike[str]",
    *,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    rollouts: "Run | str | os.PathLike[str] | None" = None,
    on_update: Callable[[int, dict[str, float]], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    **flags: Any,
) -> "TrainingResult":
    """Train on rollouts as stale as `delay` says: `gmc train`.

    flags: the command's, such as estimator="gmc", delay=64, updates=100; settings: any other by dotted key; rollouts: a run
    whose version-0 rollouts are imported; on_update: called with (update, metrics) after each; stopping: polled between
    updates, a run that it stops goes on with `resume`. Raises as `rollout`.
    """
    from gmc.training.loop import Observer
    from gmc.training.run import train_run

    class Callback(Observer):
        def updated(self, update: int, metrics: dict[str, float]) -> None:
            if on_update is not None:
                on_update(update, metrics)

    path = Run(run).path
    resolved = _resolved(path, recipe, settings, flags, command="train", resume=resume, overwrite=overwrite)
    return train_run(
        path,
        resolved,
        resume=resume,
        overwrite=overwrite,
        rollouts_from=None if rollouts is None else Run(rollouts).path,
        observer=Callback(),
        stopping=stopping,
    )


def evaluate(
    run: "Run | str | os.PathLike[str] | None" = None,
    *,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **asked: Any,
) -> "Evaluation":
    """Score the policies of a run, or a model, on benchmarks: `gmc eval`. `.to_frame()` of the result is a table of scores.

    asked: the command's flags, such as bench=["math500"], n=4, policy="all", base=True, problems="mine.jsonl"; settings: any
    other by dotted key. Raises `UsageError` for an unknown flag, `UsageError` or `DataError` for what is not there.
    """
    from gmc.errors import UsageError
    from gmc.evaluation.asking import resolve_request
    from gmc.evaluation.request import Request
    from gmc.evaluation.run import evaluate_run

    if (run is None) == (model is None):
        raise UsageError("evaluate: give a run or a model, one of them")
    own = {field.name for field in fields(Request)} - {"run", "trained"}
    flags = {name: value for name, value in asked.items() if name not in own} | {"model": model}
    request = Request(**{name: value for name, value in asked.items() if name in own})
    path = None if run is None else Run(run).path
    request, resolved = resolve_request(request, path, flags=flags, settings=settings)
    if path is not None:
        request = replace(request, run=RunDirectory.open(path))
    return evaluate_run(request, resolved, watch=lambda candidate, task: lambda share, new: None)


def sweep(
    file: "str | os.PathLike[str]",
    *,
    out: "str | os.PathLike[str] | None" = None,
    results: "str | os.PathLike[str] | None" = None,
    jobs: int = 1,
    launcher: str = "local",
    launcher_options: Mapping[str, str] | None = None,
    retry: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> "SweepOutcome":
    """Make the runs of a study that its results file lacks: `gmc lab sweep`. `.results` of what comes back is that file.

    file: the study (TOML); out: the folder of its runs, runs/lab/NAME by default; results: OUT/results.jsonl by default; jobs:
    runs side by side, each in a process; launcher: local, ray or slurm; stopping: polled often. A run that fails is recorded
    and does not stop the rest. Raises `UsageError` or `DataError` for a study that cannot be run.
    """
    from gmc.lab.sweep import Options, default_folder, open_study, run_sweep

    study = open_study(Path(file))
    asked = Options(jobs, launcher, launcher_options or {}, retry)
    folder = default_folder(study) if out is None else Path(out)
    return run_sweep(study, folder, asked, results=None if results is None else Path(results), stopping=stopping)


def report(
    *paths: "Run | str | os.PathLike[str]",
    baseline: str | None = None,
    out: "str | os.PathLike[str] | None" = None,
) -> "Report":
    """What a sweep or any runs come to, seeds paired: `gmc lab report`. `.compared` and `.tables` of what comes back hold it.

    paths: results files, folders of sweeps, or runs; baseline: the arm to compare with; out: a folder for report.html,
    report.md and each table as CSV and LaTeX, nothing is written without. Raises `UsageError` or `DataError` for
    what cannot be compared.
    """
    from gmc.lab.report import make_report, write_report

    made = make_report([each.path if isinstance(each, Run) else Path(each) for each in paths], baseline)
    if out is not None:
        write_report(made, Path(out))
    return made


def import_rollouts(
    source: "str | os.PathLike[str] | pandas.DataFrame", out: "str | os.PathLike[str]", **options: Any
) -> "ImportSummary":
    """Write anybody's rollouts as shards into `out`/rollouts: `gmc shards import`.

    source: a Parquet, JSONL, JSON or CSV file, or a pandas frame, one row a response. options: the command's, such as
    model="folder", policy_version=3, columns={"reward": "total_score"}, score=True. Raises `DataError` naming row and column.
    """
    from gmc.errors import UsageError
    from gmc.generation.importing import ImportOptions
    from gmc.generation.importing import import_rollouts as write

    known = {field.name for field in fields(ImportOptions)}
    for name in options:
        if name not in known:
            raise UsageError(f"{name}: no such option; there are {', '.join(sorted(known))}")
    columns = tuple(dict(options.pop("columns", {})).items())
    table = Path(source) if isinstance(source, str | os.PathLike) else source
    return write(table, Path(out), ImportOptions(**options, columns=columns))


def read_rollouts(run: "Run | str | os.PathLike[str]") -> "pandas.DataFrame":
    """Every rollout of a run, or of a folder of shards: one row a response, columns as in docs/shards.md.

    Raises `DataError` for a damaged shard, `UsageError` where there are none.
    """
    import pandas

    from gmc.errors import UsageError
    from gmc.store.shards.reader import read_shard
    from gmc.store.shards.store import scan

    folder = RunDirectory.rollouts_of(Run(run).path)
    rows = [row for stored in scan(folder) for row in read_shard(stored.path).rollouts]
    if not rows:
        raise UsageError(f"{folder}: no rollouts here; gmc rollout or gmc train make some")
    return pandas.DataFrame(rows)


def export_policy(
    run: "Run | str | os.PathLike[str]",
    to: "str | os.PathLike[str] | None" = None,
    *,
    policy: str = "latest",
    base: str = "",
    license: str = "",
    merge: bool = False,
) -> "Plan":
    """A policy with its model card: `gmc export`. Without `to` nothing is written, and `.card` and `.files` say what would be.

    to: a new folder; policy: "latest", "best" or a version; base: what others call the starting model; license: an SPDX id;
    merge: put an adapter into the weights under it. Raises `UsageError` for a policy or folder that cannot be.
    """
    from gmc.export.plan import plan_export
    from gmc.export.write import write_folder

    plan = plan_export(Run(run).directory, policy=policy, base=base, license_id=license, merge=merge)
    if to is not None:
        write_folder(plan, Path(to))
    return plan


def _resolved(
    path: Path,
    recipe: str | None,
    settings: Mapping[str, Any] | None,
    flags: Mapping[str, Any],
    *,
    command: str,
    resume: bool,
    overwrite: bool,
) -> RunSettings:
    earlier = earlier_settings(path, resume=resume, overwrite=overwrite, command=command)
    return resolve_settings(earlier=earlier, recipe=recipe, flags=settings_of_flags(flags) | dict(settings or {}))
