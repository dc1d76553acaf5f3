"""What an evaluation can be refused for before torch is loaded: a run, a benchmark or problems that are nowhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gmc.evaluation.request import Request
from gmc.loading.named import require_model
from gmc.problems.benchmarks import select_benchmarks, source_of
from gmc.problems.load import require_source
from gmc.resolving.early import look_into
from gmc.store.run_directory import RunDirectory


def require_subjects(request: Request, run: Path | None, flags: Mapping[str, Any]) -> None:
    """Raise the `UsageError` or `DataError` that the evaluation would end with seconds later.

    run: whose policies, None for a model alone; flags: as in `gmc.evaluation.asking.resolve_request`.
    """
    if flags["model"] is not None:
        require_model(flags["model"])
    if run is not None:
        RunDirectory.open(run)
    for benchmark in select_benchmarks(flags["bench"] or ()):
        require_source(source_of(benchmark, request.data_directory)[0])
    if request.problems is not None:
        require_source(request.problems)
        look_into(request.problems, request.question_field, request.answer_field)
