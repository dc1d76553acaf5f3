"""The package that `gmc estimators new` writes: one rule that works as it stands, its page and its test."""

from string import Template

from gmc.cli.scaffold import Scaffold
from gmc.estimators.names import GROUP
from gmc.estimators.registry import list_estimators

RULE = Template('''\
"""$name: one line that says what the rule does."""

import math

import torch
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from pydantic import Field
from torch import Tensor


class $cls(Estimator):
    """Weights a response by min{rho, cap}, rho its trajectory ratio. Replace this rule by your own."""

    name = "$name"
    summary = "Sequence truncation min{rho, cap}, as scaffolded"
    formula = "min{rho, cap} * A"
    reference = "where the rule comes from"
    evidence = "what is certain about the formula and what is a guess"
    scope = "sequence"

    class Settings(EstimatorSettings):
        """cap: largest weight."""

        cap: float = Field(2.0, ge=1, description="trajectory ratios are truncated here")

    def objective(self, batch: Batch) -> Tensor:
        """Objective_BT, to be maximized; a weight is detached, or its own gradient would be followed too."""
        log_weight_B = batch.log_rho_B.detach().clamp(max=math.log(self.settings.cap))
        return torch.exp(log_weight_B)[:, None] * batch.advantages_B1 * batch.logp_BT
''')

TEST = Template("""\
import torch
from gmc.testing import check_estimator, make_batch, run_stages

from $package.rule import $cls


def test_the_contract():
    check_estimator($cls)


def test_the_weights():
    log_ratio_BT = torch.tensor([[-1.0], [3.0]], dtype=torch.float64)
    outcome = run_stages($cls(), make_batch(log_ratio_BT, torch.tensor([[1.0, 0.0]], dtype=torch.float64)))
    weights = outcome.gradient_BT[:, 0] / outcome.advantages_PG[0]
    torch.testing.assert_close(weights, torch.tensor([-1.0, 0.6931471805599453], dtype=torch.float64).exp())
""")

RULE_SCAFFOLD = Scaffold(
    kind="rule",
    group=GROUP,
    installed=list_estimators,
    module="rule",
    source=RULE,
    test=TEST,
    title=Template("The correction rule $name"),
    commands=Template("gmc estimators show $name\n    gmc train --estimator $name"),
    check="check_estimator",
    contract="gmc.estimators.base.Estimator",
)
