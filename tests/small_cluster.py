"""A cluster of three workers with two slots, small enough to be simulated often."""

from collections.abc import Callable
from typing import Any

from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.lengths import DrawnLengths

SMALL = ClusterSettings(
    workers=3, slots=2, tokens_per_second=10, prompts=3, group_size=2, update_seconds=6, sync_seconds=2, max_ahead=0
)


def repeated(simulate: Callable[..., Any], config: ClusterSettings, seed: int) -> dict[str, Any]:
    """The summary of 30 updates. A second simulation gives the same, and every response is trained on."""
    lengths = DrawnLengths(120, 0.9, prompts=config.prompts, group_size=config.group_size, seed=seed)
    first, second = (simulate(config, lengths, updates=30, seed=seed).summary() for _ in range(2))
    assert first == second
    assert first["delay"]["responses"] == 30 * config.prompts * config.group_size
    assert 0 < first["worker_utilization"] <= 1 + 1e-9
    return first
