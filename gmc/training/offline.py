"""Saying that a run is mostly offline: before hours are spent on it where that is known, else at its end."""

import logging

from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.delays.version_0 import TRIAL_UPDATES, RateMass, forecast, warning
from gmc.resolving.build import build_delay
from gmc.training.optimizer import learning_rate

log = logging.getLogger(__name__)


class OfflineWarning:
    """Warns once that more than half of the learning rate falls on stale rollouts of version 0; notes it of a trial."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._said = False

    def before(self, planned_updates: int) -> None:
        """Look ahead from update 0, if the delay's decisions depend on nothing that is yet to come."""
        settings, rollout = self._settings, self._settings.rollout
        delay = delay_class(settings.delay)
        if delay.live or delay.needs_existing_shards:
            return
        delays = build_delay(settings, planned_updates)
        if delays.first_launches is not None:

            def rate_of(update: int) -> float:
                return learning_rate(update, planned_updates, settings.optimizer)

            self.look(forecast(delays, rollout.prompts, rollout.group_size, rate_of, planned_updates))

    def look(self, mass: RateMass) -> None:
        """Warn if this is mostly offline and nothing was said yet."""
        if mass.mostly_offline and mass.share is not None and not self._said:
            self._said = True
            planned = self._settings.train.updates
            level = logging.INFO if planned < TRIAL_UPDATES else logging.WARNING
            log.log(level, "%s", warning(mass.share, self._settings.delay, planned))
