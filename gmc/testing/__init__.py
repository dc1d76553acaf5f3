"""For authors of plug-ins: `check_estimator` tests a rule against its contract, `random_batch` makes inputs for it,
`check_delay` tests a delay model, `check_reward` a reward, `check_environment` an environment."""

from gmc.testing.batches import make_batch, random_batch
from gmc.testing.contract import check_estimator
from gmc.testing.delays import check_delay
from gmc.testing.environments import check_environment
from gmc.testing.rewards import check_reward
from gmc.testing.stages import Outcome, run_stages

__all__ = [
    "Outcome",
    "check_delay",
    "check_environment",
    "check_estimator",
    "check_reward",
    "make_batch",
    "random_batch",
    "run_stages",
]
