"""A discrete-event forecast of asynchronous training on a cluster of rollout workers and one trainer.

Batch b joins the queue when version b − A is published (at the start for b ≤ A), so at most A batches beyond the one in
training are ever launched: that is the back-pressure. Its responses take free slots in order of arrival. A group comes from
the version that was current when its first response started, and is ready when its last one ends. Update n starts when the
update before it is published and P groups are ready, and takes the P earliest-ready ones; none is dropped.

With overlapping syncs the trainer goes on while a version travels, and workers take what has come; time that they spend reading
it is not taken from their generation.

With in-flight updates all workers pause for every sync and continue with the new weights. The simulation then runs in
generation time, in which a pause has no length, and adds the pauses to the wall clock afterwards; nothing else changes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gmc.simulator.cluster_report import ClusterReport, Lags
from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.failures import Failures
from gmc.simulator.flight import Flight, Flights
from gmc.simulator.lengths import LengthSource
from gmc.simulator.littles_law import Ledger
from gmc.simulator.servers import ServerPool, slowness_of_workers
from gmc.simulator.transfer import Transfer

Floats = NDArray[np.float64]


def simulate_cluster(
    settings: ClusterSettings,
    lengths: LengthSource,
    *,
    updates: int,
    seed: int,
    on_update: Callable[[], None] = lambda: None,
) -> ClusterReport:
    """Simulate `updates` updates on this cluster, fed by responses of these lengths; `on_update` is called after each.

    Deterministic from the seed; memory is bounded by what is in flight. Raises `GmcError` when Little's law fails.
    """
    prompts = settings.prompts
    pool = _pool(settings, seed)
    flights = Flights(prompts, settings.group_size)
    lags = Lags(updates, in_flight_updates=settings.in_flight_updates)
    ledger, transfer = Ledger(), Transfer(settings)
    published = trainer_waited = 0.0
    for update in range(updates):
        for batch in range(ledger.entered // prompts, update + settings.max_ahead + 1):
            flight = Flight(published, lengths.of_batch(batch))
            jobs = flights.launch(batch, flight)
            work = flight.lengths_PG.ravel() / settings.tokens_per_second
            for placed in pool.submit(jobs, np.full(len(jobs), published), work):
                flights.placed(placed)
            ledger.entered += prompts
        while pool.next_retry < (start := max(published, flights.all_ready(prompts))):
            flights.placed(pool.place_next_retry())
        trainer_waited += start - published
        ledger.number_over_time += ledger.inside * (start - published)
        ready_at, taken = flights.take(prompts)
        lags.add(update, ready_at, taken)
        ledger.leave(prompts, sum((start - flight.launched_at) * len(groups) for flight, groups in taken))
        published = start + settings.cycle
        ledger.number_over_time += ledger.inside * settings.cycle
        lags.publish(transfer.came_at(published))
        on_update()
    ledger.check(flights.groups, flights.time_spent(published))
    lost_after = pool.lost_after(published)
    return ClusterReport(
        settings=settings,
        lags=lags,
        updates=updates,
        wall_seconds=published + (updates * settings.sync if settings.in_flight_updates else 0.0),
        trainer_waited_seconds=trainer_waited,
        busy_slot_seconds=pool.busy - flights.busy_after(published) - lost_after,
        lost_slot_seconds=pool.lost - lost_after,
        failed_responses=pool.failed_jobs,
        waiting_groups=flights.groups,
        versions_sent=transfer.sent,
        policy_gb=transfer.gb,
    )


def _pool(settings: ClusterSettings, seed: int) -> ServerPool:
    worker_of_slot = np.repeat(np.arange(settings.workers), settings.slots)
    slowness = slowness_of_workers(settings.workers, settings.straggler_share, settings.straggler_slowdown, seed)
    failures = None
    if settings.mtbf_hours is not None:
        failures = Failures(worker_of_slot, mean_time=3600 * settings.mtbf_hours, down_time=settings.restart_seconds, seed=seed)
    return ServerPool(settings.total_slots, slowness=slowness[worker_of_slot], failures=failures)
