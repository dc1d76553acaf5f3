"""Little's law as a check: the number in a system, summed over time, equals the time that all who were in it spent there."""

from dataclasses import dataclass

from gmc.errors import GmcError


@dataclass
class Ledger:
    """Groups that enter and leave a simulation, one for each of its uses, and both sides of Little's law.

    The two sides are counted in different ways, so a lost or doubled group shows.
    """

    entered: int = 0
    left: int = 0
    number_over_time: float = 0.0
    time_spent: float = 0.0

    @property
    def inside(self) -> int:
        """Groups that entered and did not leave."""
        return self.entered - self.left

    def leave(self, groups: int, time_spent: float) -> None:
        """Groups leave after having spent this time inside, summed over them."""
        self.left += groups
        self.time_spent += time_spent

    def check(self, waiting: int, time_spent: float) -> None:
        """Raise `GmcError` unless the groups that still wait, and their time so far, make both counts come out even."""
        if self.entered != self.left + waiting:
            raise GmcError(f"{self.entered} groups launched, {self.left} trained, {waiting} waiting: groups were lost")
        spent = self.time_spent + time_spent
        if abs(self.number_over_time - spent) > 1e-6 * max(self.number_over_time, spent, 1.0):
            raise GmcError(
                f"the simulation breaks Little's law: {self.number_over_time:.9g} in the system over time, "
                f"{spent:.9g} spent in it; its figures cannot be trusted, please report the command"
            )
