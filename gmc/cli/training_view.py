"""What a person sees of a training run: updates on a bar, and the sampling before the first one."""

from contextlib import ExitStack

from gmc.cli.progress import Bar, progress_bar
from gmc.training.loop import Observer


class TrainingView(Observer):
    """Draws updates on a bar; while the queue fills before the first update it says how far that is. A context manager."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._bar: Bar | None = None
        self._to_fill: int | None = None
        self._sampled = 0

    def __enter__(self) -> "TrainingView":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def opened(self, version: int, planned_updates: int, responses_to_fill: int | None) -> None:
        """Start the bar."""
        self._to_fill = responses_to_fill
        self._bar = self._open.enter_context(progress_bar("train", planned_updates, "updates", done=version))

    def generated(self, responses: int) -> None:
        """Count sampled responses until the next update."""
        self._sampled += responses
        assert self._bar is not None
        of = "" if self._to_fill is None else f" of {self._to_fill}"
        self._bar.advance(0, f"sampling: {self._sampled}{of} responses")

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        """Show an update's numbers."""
        self._sampled, self._to_fill = 0, None
        assert self._bar is not None
        self._bar.advance(1, _in_short(metrics))


def _in_short(metrics: dict[str, float]) -> str:
    return (
        f"reward {metrics['reward/mean']:.2f}  delay {metrics['delay/mean']:.0f}  ESS {metrics['ratio/ess_share']:.2f}  "
        f"capped {metrics['ratio/groups_capped_share']:.2f}  grad {metrics['optimizer/gradient_norm']:.2g}  "
        f"{metrics['time/tokens_per_second']:.0f} tok/s"
    )
