"""What an evaluation is asked for. Light: the command makes its options of these fields before anything heavy is imported."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gmc.config.described import check_bounds, described

if TYPE_CHECKING:
    from gmc.store.run_directory import RunDirectory

ASKED, SAMPLED, WHERE = "What is asked", "How answers are sampled", "Run"
"""Panels of options in the help."""


@dataclass(frozen=True)
class Request:
    """What is evaluated, and how it is asked beyond what the settings say.

    run: whose policies; None evaluates `settings.model.source`. trained: whether the settings are those that the run was
    trained with.
    """

    run: "RunDirectory | None" = None
    trained: bool = True
    policy: str = described("latest, best (with --eval-every), a version, or all (a curve)", default="latest", panel=WHERE)
    base: bool = described("Also evaluate the model the run started from, and compare", default=False, panel=WHERE)
    problems: str | None = described("A problem file or hub id as a benchmark", default=None, panel=ASKED)
    question_field: str | None = described("Question field of --problems", default=None, panel=ASKED)
    answer_field: str | None = described("Answer field of --problems", default=None, panel=ASKED)
    data_directory: Path | None = described(
        "Folder with benchmark files (math500.jsonl, …) in place of the hub",
        default=None,
        panel=ASKED,
        flag="--bench-data",
        envvar="GMC_BENCH_DATA",
    )
    template: str | None = described(
        "Prompt template id", default=None, panel=ASKED, default_text="the run's own, else the benchmark's"
    )
    last_number: bool = described(
        "Take a number that merely stands last for an answer (never done in training)", default=False, panel=SAMPLED
    )
    batch_sequences: int = described("Responses generated at once", least=1, default=256, panel=SAMPLED)
    out: Path | None = described(
        "Folder for results", default=None, panel=WHERE, default_text="RUN/evals, or evals for --model"
    )
    resume: bool = described("Go on where a killed evaluation stopped", default=False, panel=WHERE)

    def __post_init__(self) -> None:
        """Take paths as text and text as paths, as Python users write them. Raises `UsageError` for a bad number."""
        for name, kind in (("problems", os.fspath), ("data_directory", Path), ("out", Path)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, kind(getattr(self, name)))
        check_bounds(self)
