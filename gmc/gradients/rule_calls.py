"""Calling a rule that anyone may have written: what it returns is checked, and what it raises names it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.errors import GmcError
from gmc.estimators import results
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch
from gmc.estimators.composition import ComposedEstimator
from gmc.estimators.epsilon import CappingEstimator
from gmc.estimators.errors import EstimatorStageError
from gmc.estimators.gradient import Gradient, Skip
from gmc.estimators.registry import origin
from gmc.registry import in_one_line

NOT_APPLIED = "the update was not applied. Run gmc.testing.check_estimator on the rule, or report this to its package"
NOT_SAVED = "no checkpoint was written. Run gmc.testing.check_estimator on the rule, or report this to its package"
NOT_RESUMED = "the run was left as it is. Install the version of the package that wrote the checkpoint, or report this to it"


@dataclass(frozen=True)
class RuleCalls:
    """The stages of `estimator` in one update. consequence: what follows from a failing stage, in one clause and a cure.

    Each method calls the stage of its name and raises `EstimatorStageError` when the rule raises or returns something else
    than `gmc.estimators.base` says. All are called before the optimizer's step, so the weights are then as they were.
    """

    estimator: Estimator
    update: int
    consequence: str = NOT_APPLIED

    def advantages(self, batch: Batch) -> Tensor:
        """Stage 1."""
        with self._stage("advantages"):
            return results.checked_advantages(self.estimator.advantages(batch), batch)

    def objective_gradient(self, batch: Batch) -> Tensor:
        """Stage 2, and the gradient of its masked sum in `batch.logp_BT`."""
        with self._stage("objective"):
            objective_BT = results.checked_objective(self.estimator.objective(batch), batch)
            return results.objective_gradient(objective_BT, batch)

    @property
    def uses_gradient(self) -> bool:
        """Whether the rule has a stage 3 of its own."""
        return type(self.estimator).gradient is not Estimator.gradient

    def gradient(self, gradient: Gradient) -> Gradient | Skip:
        """Stage 3."""
        with self._stage("gradient"):
            given = gradient.of(gradient.tensors)  # a rule may put other tensors into the one that it is handed
            return results.checked_gradient(self.estimator.gradient(gradient), given)

    def learning_rate_scale(self, batch: Batch) -> float:
        """Stage 4."""
        with self._stage("learning_rate_scale"):
            return results.checked_scale(self.estimator.learning_rate_scale(batch))

    def epsilon(self, batch: Batch, default: float) -> float:
        """The threshold of a capping rule, and the default for any other."""
        if not isinstance(self.estimator, CappingEstimator):
            return default
        with self._stage("epsilon"):
            return results.checked_epsilon(self.estimator.epsilon(batch))

    def metrics(self, batch: Batch) -> dict[str, float]:
        """The rule's metrics, by its name."""
        with self._stage("metrics"):
            metrics = results.checked_metrics(self.estimator.metrics(batch))
        return {f"{self.estimator.name}/{key}": value for key, value in metrics.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """What the rule keeps over a resume."""
        with self._stage("state_dict", NOT_SAVED):
            return results.checked_state(self.estimator.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Hand the rule what it kept."""
        with self._stage("load_state_dict", NOT_RESUMED):
            self.estimator.load_state_dict(state)

    @contextmanager
    def _stage(self, stage: str, consequence: str | None = None) -> Iterator[None]:
        try:
            yield
        except (GmcError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a rule can fail in any way; its error is chained, named and told in one line
            what = str(error) if isinstance(error, results.StageResultError) else f"raised {in_one_line(error)}"
            where = f"estimator {_named(self.estimator)}, update {self.update}"
            raise EstimatorStageError(f"{where}: {stage} {what}; {consequence or self.consequence}") from error


def _named(estimator: Estimator) -> str:
    own = f"{estimator.name} ({origin(type(estimator))})"
    return f"{own} over {_named(estimator.base)}" if isinstance(estimator, ComposedEstimator) else own
