"""Optional experiment trackers behind one small interface. metrics.jsonl is always written; these are extra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gmc.errors import UsageError


class Tracker(Protocol):
    """Receives each update's metrics."""

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        ...

    def close(self, *, failed: bool) -> None:
        """End the tracked run, marked as failed or finished."""
        ...


class WandbTracker:
    """Weights & Biases; project and credentials come from its own environment variables."""

    def __init__(self, run_id: str, settings: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(id=run_id, resume="allow", config=dict(settings))

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        self._run.log(dict(metrics), step=update)

    def close(self, *, failed: bool) -> None:
        """End the tracked run with its exit code."""
        self._run.finish(exit_code=int(failed))


class TensorBoardTracker:
    """TensorBoard event files in the run directory."""

    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory))

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record one update."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, update)

    def close(self, *, failed: bool) -> None:
        """Flush and close the event file (TensorBoard has no notion of failure)."""
        self._writer.close()


def make_trackers(names: Sequence[str], run_id: str, directory: Path, settings: Mapping[str, Any]) -> list[Tracker]:
    """The trackers named in the settings. Raises `UsageError` naming the extra when a package is missing."""
    trackers: list[Tracker] = []
    for name in names:
        try:
            trackers.append(WandbTracker(run_id, settings) if name == "wandb" else TensorBoardTracker(directory))
        except ImportError as error:
            raise UsageError(f"train.trackers: {name} is not installed ({error}); pip install 'gmc-rl[{name}]'") from error
    return trackers
