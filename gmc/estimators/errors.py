"""Errors about rules: unknown, ambiguous, broken, with a refused setting (exit code 2), or failing in an update (1)."""

from gmc.errors import UsageError


class EstimatorError(UsageError):
    """A rule cannot be given or used as asked. One line that names the rule and what there is to do."""


class UnknownEstimatorError(EstimatorError):
    """No installed distribution registers this name."""


class DuplicateEstimatorError(EstimatorError):
    """Two distributions register one name, so neither can be meant."""


class BrokenEstimatorError(EstimatorError):
    """The rule is registered but cannot be imported or built, or is no estimator; the cause is chained."""


class EstimatorSettingError(EstimatorError):
    """A setting is unknown to the rule or outside its range."""


class EstimatorStageError(EstimatorError):
    """A stage of the rule raised, or returned something other than its contract says; the cause is chained. Exit code 1."""

    exit_code = 1
