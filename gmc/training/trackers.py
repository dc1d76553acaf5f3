"""Optional experiment trackers behind one small interface. metrics.jsonl is always written; these are extra."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from gmc.config.layers import flatten
from gmc.delays.base import delay_of
from gmc.errors import UsageError
from gmc.store.shards.groups import Groups, sampled_length

SAMPLES = 8
"""Rows of a table of samples."""


@dataclass(frozen=True)
class Tracked:
    """What a tracker is told of a run once. path: the run directory; settings: the tree of those in force; first_update: where
    this process goes on, so that what a tracker holds from there on comes again."""

    run_id: str
    path: Path
    settings: Mapping[str, Any]
    first_update: int = 0

    @property
    def rule(self) -> str:
        """The correction rule's name."""
        return str(self.settings["estimator"]["name"])

    @property
    def delay(self) -> str:
        """The delay's spec."""
        return str(self.settings["delay"])


@dataclass(frozen=True)
class TrackedSample:
    """One response of an update. delay: in updates, None where it is not known; tokens: its length; gold, prediction: the
    answers wanted and found."""

    problem: str
    prompt: str
    response: str
    reward: float
    status: str
    gold: str
    prediction: str
    delay: int | None
    tokens: int


COLUMNS = tuple(field.name for field in fields(TrackedSample))


class Tracker(Protocol):
    """Receives each update's metrics, and samples now and then."""

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        ...

    def log_samples(self, update: int, samples: Sequence[TrackedSample]) -> None:
        """Record responses that this update trained on."""
        ...

    def close(self, *, failed: bool) -> None:
        """End the tracked run, marked as failed or finished."""
        ...


class WandbTracker:
    """Weights & Biases; project and credentials come from its own environment variables. The run has the name of its folder,
    and rule and delay beside the settings in its config, to group by."""

    def __init__(self, tracked: Tracked) -> None:
        import wandb

        config = {**tracked.settings, "rule": tracked.rule, "delay": tracked.delay}
        self._table: Any = wandb.Table
        # A resumed run may have more planned updates than before, which is a changed value to W&B.
        self._run = wandb.init(id=tracked.run_id, name=tracked.path.name, resume="allow", config=config, allow_val_change=True)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        self._run.log(dict(metrics), step=update)

    def log_samples(self, update: int, samples: Sequence[TrackedSample]) -> None:
        """Record a table under "samples", at the step of the update."""
        rows = [list(asdict(sample).values()) for sample in samples]
        self._run.log({"samples": self._table(columns=list(COLUMNS), data=rows)}, step=update)

    def close(self, *, failed: bool) -> None:
        """End the tracked run with its exit code."""
        self._run.finish(exit_code=int(failed))


class TensorBoardTracker:
    """TensorBoard event files in the run directory. Settings and samples are texts, as tables; what a run that goes on makes
    again takes the place of what was there."""

    def __init__(self, tracked: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Given at the first start, too: TensorBoard takes only a second start's step for one from which all comes again.
        self._writer = SummaryWriter(str(tracked.path / "tensorboard"), purge_step=tracked.first_update)
        self._writer.add_text("run/rule and delay", f"{tracked.rule}, delay {tracked.delay}", tracked.first_update)
        settings = [(key, value) for key, value in flatten(tracked.settings)]
        self._writer.add_text("run/settings", _markdown(("setting", "value"), settings), tracked.first_update)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, update)

    def log_samples(self, update: int, samples: Sequence[TrackedSample]) -> None:
        """Record a table as the text "samples"."""
        self._writer.add_text("samples", _markdown(COLUMNS, [tuple(asdict(each).values()) for each in samples]), update)

    def close(self, *, failed: bool) -> None:
        """Flush and close the event file (TensorBoard has no notion of failure)."""
        self._writer.close()


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; bars and line ends of the texts in it are written so that they stay in their cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ↵ ") for cell in row) + " |" for row in lines
    )


def chosen_samples(groups: Groups, update: int | None) -> list[TrackedSample]:
    """The first response of each of the first groups of an update: picked before anything is known of them.

    update: None where the delays are not known.
    """
    return [
        TrackedSample(
            problem=row.problem_id,
            prompt=row.prompt,
            response=row.response,
            reward=row.reward,
            status=row.status,
            gold=row.answer,
            prediction=row.prediction or "",
            delay=None if update is None else delay_of(update, row.policy_version),
            tokens=sampled_length(row),
        )
        for row in (group[0] for group in groups[:SAMPLES])
    ]


def make_trackers(names: Sequence[str], tracked: Tracked) -> list[Tracker]:
    """The trackers named in the settings. Raises `UsageError` naming the extra when a package is missing."""
    trackers: list[Tracker] = []
    for name in names:
        try:
            trackers.append(WandbTracker(tracked) if name == "wandb" else TensorBoardTracker(tracked))
        except ImportError as error:
            raise UsageError(f"train.trackers: {name} is not installed ({error}); pip install 'gmc-rl[{name}]'") from error
    return trackers
