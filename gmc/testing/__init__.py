"""For authors of plug-ins: `check_estimator` tests a rule against its contract, `random_batch` makes inputs for it, and
`check_delay` tests a delay model."""

from gmc.testing.batches import make_batch, random_batch
from gmc.testing.contract import check_estimator
from gmc.testing.delays import check_delay
from gmc.testing.stages import Outcome, run_stages

__all__ = ["Outcome", "check_delay", "check_estimator", "make_batch", "random_batch", "run_stages"]
