"""What a person sees of a training run, and how it ends."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gmc.cli.output import say
from gmc.cli.progress import Bar, progress_bar
from gmc.cli.signals import stop_on_signals
from gmc.config.settings import Settings
from gmc.live.ending import mark_ended
from gmc.ranks import ALONE, Ranks
from gmc.store.run_directory import RunDirectory
from gmc.training.loop import train
from gmc.training.opening import open_session
from gmc.training.session import Session


class _View:
    """Draws updates on a bar; while the queue fills before the first update it says how far that is. Without a bar (on a rank
    that does not lead) it only remembers."""

    def __init__(self, bar: Bar | None, responses_to_fill: int | None) -> None:
        self._bar = bar
        self._to_fill = responses_to_fill
        self._sampled = 0
        self.last: dict[str, float] = {}
        self.updates = self.without_gradient = 0

    def generated(self, responses: int) -> None:
        """Count sampled responses until the next update."""
        self._sampled += responses
        if self._bar is not None:
            known = not self.last and self._to_fill is not None
            self._bar.advance(0, f"sampling: {self._sampled}{f' of {self._to_fill}' if known else ''} responses")

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        """Show an update's numbers."""
        self.last = metrics
        self._sampled = 0
        self.without_gradient += metrics["reward/equal_groups_share"] == 1
        self.updates += 1
        if self._bar is not None:
            self._bar.advance(1, _in_short(metrics))


def _in_short(metrics: dict[str, float]) -> str:
    return (
        f"reward {metrics['reward/mean']:.2f}  delay {metrics['delay/mean']:.0f}  ESS {metrics['ratio/ess_share']:.2f}  "
        f"capped {metrics['ratio/groups_capped_share']:.2f}  grad {metrics['optimizer/gradient_norm']:.2g}  "
        f"{metrics['time/tokens_per_second']:.0f} tok/s"
    )


@contextmanager
def _shown(session: Session, settings: Settings) -> Iterator[_View]:
    if not session.updater.ranks.leads:
        yield _View(None, None)
        return
    batches, rollout = session.queue.to_fill, settings.rollout
    responses = None if batches is None else batches * rollout.prompts * rollout.group_size
    with progress_bar("train", session.planned_updates, "updates", done=session.version) as bar:
        yield _View(bar, responses)


def run_training(
    directory: RunDirectory, settings: Settings, *, rollouts_from: Path | None, ranks: Ranks = ALONE
) -> dict[str, Any]:
    """Open the session, train with a progress bar, publish the final policy; returns the summary of `--json`.

    ranks: the processes that train together; all of them call, the lead speaks.
    """
    tell = say if ranks.leads else _silently
    with ExitStack() as resources, stop_on_signals() as stop:
        session = open_session(
            directory,
            settings,
            resources,
            rollouts_from=rollouts_from,
            say=tell,
            stopping=lambda: bool(stop),
            ranks=ranks,
        )
        started = session.version
        if started == session.planned_updates:
            tell(f"all {started} updates of {directory.path} are done; add more with --resume --updates N")
        elif started:
            tell(f"resuming {directory.path} at update {started} of {session.planned_updates}")
        failed = True
        try:
            with _shown(session, settings) as view:
                finished = train(session, view, lambda: ranks.any(bool(stop)))
            failed = False
        finally:
            for tracker in session.trackers:
                tracker.close(failed=failed)
        if view.updates and 2 * view.without_gradient > view.updates:
            tell(
                f"{view.without_gradient} of {view.updates} updates had equal rewards in every group and taught nothing: the "
                "problems are too hard or too easy for this model, or its answers are not found (see gmc grade)"
            )
        if finished:
            session.publish()
            if settings.is_live and ranks.leads:
                mark_ended(directory, session.version)
            tell(f"policy version {session.version} is in {directory.policies}, metrics in {directory.metrics}; next: gmc eval")
        else:
            tell(f"stopped by {stop.signal_name or 'another rank'} after update {session.version}; go on with --resume")
    return {
        "run": str(directory.path),
        "estimator": settings.estimator["name"],
        "delay": settings.delay,
        "updates": session.version,
        "planned_updates": session.planned_updates,
        "finished": finished,
        **view.last,
    }


def _silently(text: str) -> None:
    pass
