"""Errors about rules by name: unknown, ambiguous, broken, or with a refused setting. The command line exits with 2."""


class EstimatorError(ValueError):
    """A rule cannot be given as asked. One line that names what was asked for and what there is."""

    exit_code = 2


class UnknownEstimatorError(EstimatorError):
    """No installed distribution registers this name."""


class DuplicateEstimatorError(EstimatorError):
    """Two distributions register one name, so neither can be meant."""


class BrokenEstimatorError(EstimatorError):
    """The rule is registered but cannot be imported or is no estimator; the cause is chained."""


class EstimatorSettingError(EstimatorError):
    """A setting is unknown to the rule or outside its range."""
