"""The package that `gmc estimators new` writes: one rule that works as it stands, its page and its test."""

import re
from pathlib import Path
from string import Template

from gmc.errors import UsageError
from gmc.estimators.registry import list_estimators
from gmc.store.files import write_text

PYPROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "gmc-$name"
version = "0.1.0"
description = "The correction rule $name for gmc."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["gmc"]

[project.entry-points."gmc.estimators"]
$name = "$package.rule:$cls"

[tool.hatch.build.targets.wheel]
packages = ["$package"]
""")

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

README = Template("""\
# gmc-$name

The correction rule `$name` for gmc.

    pip install -e .
    pytest
    gmc estimators show $name
    gmc train --estimator $name

The rule is in `$package/rule.py`. `gmc.testing.check_estimator` checks it against the contract of
`gmc.estimators.base.Estimator`.
""")


def scaffold(name: str, out: Path) -> Path:
    """Write the package `gmc-NAME` under `out` and return its folder.

    Raises `UsageError` for a name that is no rule name, one that is registered already, or a folder that exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"{name!r} is no rule name; use lower-case words joined by hyphens, such as my-rule")
    for found in list_estimators():
        if found.name == name:
            raise UsageError(f"{name!r} is already registered by {found.distribution}; choose another name")
    folder = out / f"gmc-{name}"
    if folder.exists():
        raise UsageError(f"{folder} exists already; nothing was written. Choose another name or another --out")
    words = {
        "name": name,
        "package": f"gmc_{name.replace('-', '_')}",
        "cls": "".join(word.capitalize() for word in name.split("-")),
    }
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{words['package']}/rule.py": RULE,
        f"tests/test_{words['package'].removeprefix('gmc_')}.py": TEST,
    }
    for path, template in files.items():
        write_text(folder / path, template.substitute(words))
    write_text(folder / words["package"] / "__init__.py", f'"""The correction rule {name} for gmc."""\n')
    return folder
