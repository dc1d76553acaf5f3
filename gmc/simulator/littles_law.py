"""Little's law as a check: the number in a system, summed over time, equals the time that all who were in it spent there."""

from gmc.errors import GmcError


def check_littles_law(number_over_time: float, time_spent: float) -> None:
    """Raise `GmcError` unless both agree (up to rounding).

    number_over_time: the number in the system, integrated over the run; time_spent: time in the system until the end of the
    run, summed over everyone. They are counted in different ways, so a lost or doubled group shows.
    """
    if abs(number_over_time - time_spent) > 1e-6 * max(number_over_time, time_spent, 1.0):
        raise GmcError(
            f"the simulation breaks Little's law: {number_over_time:.9g} in the system over time, "
            f"{time_spent:.9g} spent in it; its figures cannot be trusted, please report the command"
        )
