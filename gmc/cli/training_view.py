"""What a person sees of a training run, and how it ends."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gmc.cli.output import say
from gmc.cli.progress import Bar, progress_bar
from gmc.config.settings import Settings
from gmc.live.ending import mark_ended
from gmc.run import RunDirectory
from gmc.training.loop import train
from gmc.training.opening import open_session
from gmc.training.signals import stop_on_signals


class _View:
    """Draws updates on a bar; while the queue fills before the first update it says how far that is."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._sampled = 0
        self.last: dict[str, float] = {}

    def generated(self, responses: int) -> None:
        """Count sampled responses until the next update."""
        self._sampled += responses
        self._bar.advance(0, f"sampling: {self._sampled} responses")

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        """Show an update's numbers."""
        self.last = metrics
        self._sampled = 0
        self._bar.advance(
            1,
            f"reward {metrics['reward/mean']:.2f}  delay {metrics['delay/mean']:.0f}  ESS {metrics['ratio/ess_share']:.2f}  "
            f"capped {metrics['ratio/groups_capped_share']:.2f}  grad {metrics['optimizer/gradient_norm']:.2g}  "
            f"{metrics['time/tokens_per_second']:.0f} tok/s",
        )


def run_training(directory: RunDirectory, settings: Settings, *, rollouts_from: Path | None) -> dict[str, Any]:
    """Open the session, train with a progress bar, publish the final policy; returns the summary of `--json`."""
    with ExitStack() as resources, stop_on_signals() as stop:
        session = open_session(
            directory, settings, resources, rollouts_from=rollouts_from, say=say, stopping=lambda: bool(stop)
        )
        started = session.version
        if started == session.planned_updates:
            say(f"all {started} updates of {directory.path} are done; add more with --resume --updates N")
        elif started:
            say(f"resuming {directory.path} at update {started} of {session.planned_updates}")
        failed = True
        try:
            with progress_bar("train", session.planned_updates, "updates", done=started) as bar:
                view = _View(bar)
                finished = train(session, view, stop)
            failed = False
        finally:
            for tracker in session.trackers:
                tracker.close(failed=failed)
        if finished:
            session.publish()
            if settings.is_live:
                mark_ended(directory, session.version)
            say(f"policy version {session.version} is in {directory.policies}, metrics in {directory.metrics}; next: gmc eval")
        else:
            say(f"stopped by {stop.signal_name} after update {session.version}; go on with --resume")
    return {
        "run": str(directory.path),
        "estimator": settings.estimator["name"],
        "delay": settings.delay,
        "updates": session.version,
        "planned_updates": session.planned_updates,
        "finished": finished,
        **view.last,
    }
