"""What can be refused before anything is created: a rule, a sampling value or a delay that cannot be trained with."""

from gmc.config.settings import Settings
from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.estimators.registry import build_estimator


def check_settings(settings: Settings) -> None:
    """Raise `UsageError` for settings that no run could train with. What depends on shards is checked when the run is open."""
    build_estimator(settings.estimator["name"], {key: value for key, value in settings.estimator.items() if key != "name"})
    settings.rollout.sampling(())
    rollout = settings.rollout
    context = DelayContext(rollout.prompts, rollout.group_size, settings.seed, settings.train.updates)
    delay_class(settings.delay).check(arguments_of(settings.delay), context)
