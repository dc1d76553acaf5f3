"""The training loop. This is the algorithm:

for n = 0 … N−1:
    version n samples the batches that the delay model asks for (each becomes a shard on disk)
    take P groups, as stale as the delay model says
    the rule turns rewards and ratios into a gradient; AdamW makes version n+1
    every K updates: checkpoint, publish; every L: score held-out problems, publish the best
"""

from collections.abc import Callable

from gmc.training.session import Session


class Observer:
    """Is told how the loop goes on. A command draws it, a notebook may print it; this one does nothing."""

    def opened(self, version: int, planned_updates: int, responses_to_fill: int | None) -> None:
        """The session is open at `version`; so many responses come before the first update, None when that is not known."""

    def generated(self, responses: int) -> None:
        """So many more responses have been sampled."""

    def scored(self, responses: int) -> None:
        """So many more answers to held-out problems have been sampled."""

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        """An update is done."""


def train(session: Session, observer: Observer, stopping: Callable[[], bool]) -> bool:
    """Train until the planned number of updates, or until `stopping` says so; True when all updates are done.

    Whatever ends the loop in good order, a checkpoint of the last finished update is on the disk. After a crash or a kill,
    a session opened with resume goes on from the newest checkpoint and ends with the same weights.
    """
    for update in range(session.version, session.planned_updates):
        if not session.source.launch(update, observer.generated) or stopping():
            break
        groups = session.source.take(update)
        metrics = session.updater.run(groups, update)
        metrics |= session.score_when_due(update + 1, observer.scored)
        session.record(update, groups, metrics)
        observer.updated(update, metrics)
        session.save_when_due()
    session.save()
    session.wait()
    return session.version == session.planned_updates
