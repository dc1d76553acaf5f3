"""New weights on their way to the workers: how long a policy takes, when each version has come, and how many bytes that is."""

from gmc.simulator.cluster_settings import ClusterSettings


class Transfer:
    """Sends versions while the trainer goes on, one at a time; a version that waits is overtaken by newer ones.

    A version that is trained while nothing is under way has come `sync` seconds later. One that is trained during a transfer
    goes with the next, which starts when that one ends and carries the newest: whichever it is, it then has come.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self._seconds = settings.sync
        self._gb = settings.gb_a_version
        self._overlaps = settings.overlap_sync
        self._free_at = 0.0
        self._waits = False
        self.sent = 0

    def came_at(self, trained_at: float) -> float:
        """When a version that is trained at that time has reached the workers; call in the order of versions.

        Where the trainer waits for the transfer, that is the time given: it lies behind the transfer already.
        """
        if not self._overlaps:
            self.sent += 1
            return trained_at
        if self._waits and trained_at > self._free_at:
            self._free_at += self._seconds
            self._waits = False
        if not self._waits and trained_at >= self._free_at:
            self.sent += 1
            self._free_at = trained_at + self._seconds
            return self._free_at
        self.sent += not self._waits
        self._waits = True
        return self._free_at + self._seconds

    @property
    def gb(self) -> float:
        """Gigabytes read and written for all versions that were sent."""
        return self.sent * self._gb
