"""For authors of correction rules: `check_estimator` tests a rule against the contract, `random_batch` makes inputs for it."""

from gmc.testing.batches import make_batch, random_batch
from gmc.testing.contract import check_estimator
from gmc.testing.stages import Outcome, run_stages

__all__ = ["Outcome", "check_estimator", "make_batch", "random_batch", "run_stages"]
