"""What a rule needs of the rollouts, as settings."""

from gmc.config.settings import Settings
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need


def with_needs(settings: Settings, estimator: Estimator) -> Settings:
    """The settings with behavior entropies switched on when the rule asks for them."""
    if Need.BEHAVIOR_ENTROPY not in estimator.needs or settings.rollout.entropies:
        return settings
    return settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"entropies": True})})
