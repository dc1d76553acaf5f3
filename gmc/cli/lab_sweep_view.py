"""What a person sees of a sweep: the plan of a dry run, and the live table."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from gmc.cli.output import stderr, write_line
from gmc.cli.progress import PLAIN_INTERVAL_SECONDS
from gmc.lab.measures import final_score
from gmc.lab.results import RunRecord
from gmc.lab.sweep import Study, SweepView, forecast, read_earlier
from gmc.lab.sweep_launch import Event
from gmc.lab.sweep_plan import PlannedRun, cell_text

SHARE_OF_TRAINING = 0.85
"""Of a run's work; the rest is evaluation. It only shapes the ETA within a run."""


def dry_run_record(study: Study, results: Path, jobs: int) -> dict[str, Any]:
    """Arms, runs and hours of a study, as plain values."""
    records = read_earlier(results)
    tuning, verdict = study.runs(records)
    stages = [_stage("tuning", study, tuning, records, jobs)] if tuning else []
    stages.append(_stage("verdict", study, study.verdict_ahead(records), records, jobs))
    decided = _cells(verdict)
    stages[-1]["undecided_cells"] = len(stages[-1]["cells"]) - len(decided)
    stages[-1]["cells"] = decided
    return {"sweep": study.sweep.name, "question": study.sweep.question, "results": str(results), "stages": stages}


def _stage(name: str, study: Study, runs: Sequence[PlannedRun], records: Sequence[RunRecord], jobs: int) -> dict[str, Any]:
    expected = forecast(study, runs, records)
    return {
        "stage": name,
        "cells": _cells(runs),
        "runs": expected.runs,
        "done": expected.done,
        "hours": None if expected.seconds is None else expected.seconds / 3600 / jobs,
        "hours_source": expected.source,
    }


def _cells(runs: Sequence[PlannedRun]) -> dict[str, list[int]]:
    cells: dict[str, list[int]] = {}
    for run in runs:
        cells.setdefault(cell_text(run.cell), []).append(run.seed)
    return cells


def show_plan(record: dict[str, Any]) -> None:
    """The plan on stderr: a line an arm, then the sums."""
    write_line(f"{record['sweep']}: {record['question']}" if record["question"] else record["sweep"])
    for stage in record["stages"]:
        table = Table(
            "arm", "seeds", title=f"{stage['stage']}: {stage['runs']} runs, {stage['done']} done", title_justify="left"
        )
        for cell, seeds in stage["cells"].items():
            table.add_row(cell, " ".join(map(str, seeds)))
        if stage["cells"]:
            stderr.print(table)
        else:
            write_line(str(table.title))
        waiting = ""
        if undecided := stage.get("undecided_cells"):
            write_line(f"{undecided} of its arms wait for the tuning to choose their settings")
            waiting = ", those that wait at the first value of each setting"
        hours = "unknown" if stage["hours"] is None else duration(3600 * stage["hours"])
        write_line(
            f"{stage['stage']}, {stage['runs'] - stage['done']} runs to be made{waiting}: {hours} ({stage['hours_source']})"
        )


class TableView(SweepView):
    """The live table on a terminal: a row a running run, a line for all. Elsewhere a plain line now and then."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._open = ExitStack()
        self._live: Live | None = None
        self._name, self._total, self._ended, self._failed, self._before = "", 0, 0, 0, 0
        self._cells: dict[str, str] = {}
        self._active: dict[str, Event] = {}
        self._started_at = self._said_at = time.monotonic()

    def __enter__(self) -> "TableView":
        if stderr.is_terminal:
            self._live = self._open.enter_context(Live(console=stderr, refresh_per_second=2, transient=True))
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def stage(self, name: str, runs: Sequence[PlannedRun], missing: Sequence[PlannedRun]) -> None:
        """Start over with the runs of a stage."""
        self._before = self._ended = len(runs) - len(missing)  # those of earlier commands count, or the count would go back
        self._name, self._total, self._failed = name, len(runs), 0
        self._cells = {run.run: f"{cell_text(run.cell)}, seed {run.seed}" for run in missing}
        self._active.clear()
        self._started_at = time.monotonic()
        write_line(f"{name}: {len(runs)} runs, {len(runs) - len(missing)} of them recorded")

    def happened(self, event: Event) -> None:
        """Keep what each run is doing."""
        if event.kind == "progress":
            self._active[event.run] = event
        elif event.kind != "idle":
            self._active.pop(event.run, None)
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._said_at > PLAIN_INTERVAL_SECONDS and self._active:
            self._said_at = time.monotonic()
            write_line("; ".join([self._sum(), *(f"{self._cells[run]}: {_doing(at)}" for run, at in self._active.items())]))

    def recorded(self, record: RunRecord) -> None:
        """A line for each run that ended."""
        self._ended += 1
        self._failed += not record.finished
        score = final_score(record)
        value = "" if score is None else f"  score {100 * score:.1f}"
        took = sum(record.seconds.get(phase, 0.0) for phase in ("training", "evaluation"))
        how = f"done in {took:.0f} s{value}" if record.finished else f"failed: {record.error}"
        write_line(f"{self._sum()}  {self._cells[record.run]}: {how}")

    def _table(self) -> Table | Text:
        if not self._active:
            return Text(self._sum())
        table = Table("run", "now", title=self._sum(), title_justify="left", expand=False)
        for run, event in self._active.items():
            table.add_row(self._cells[run], _doing(event))
        return table

    def _sum(self) -> str:
        done = self._ended - self._before + sum(_share(event) for event in self._active.values())
        elapsed = time.monotonic() - self._started_at
        eta = f", ETA {duration(elapsed * (self._total - self._before - done) / done)}" if done > 0.01 else ""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._name} {self._ended}/{self._total}{failed}{eta}"


def _share(event: Event) -> float:
    share = event.done / max(event.total, 1)
    if event.phase == "updates":
        return SHARE_OF_TRAINING * share
    return SHARE_OF_TRAINING + (1 - SHARE_OF_TRAINING) * share / 2 if event.phase.startswith("evaluation") else 0.0


def _doing(event: Event) -> str:
    return f"{event.phase} {event.done}/{event.total}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
