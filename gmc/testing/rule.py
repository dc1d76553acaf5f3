"""A rule under test: fresh instances of it, and comparisons with one tolerance."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch
from gmc.testing.batches import random_batch
from gmc.testing.stages import Outcome, run_stages

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Rule:
    """The class and the settings to test it with."""

    cls: type[Estimator]
    settings: dict[str, Any]

    @cached_property
    def declared(self) -> Estimator:
        """An instance to read declarations from; no stage of it is run."""
        return self.fresh()

    def fresh(self) -> Estimator:
        """A new instance, so that no check sees another's state."""
        return self.cls(self.cls.Settings(**self.settings))

    def outcome(self, batch: Batch) -> Outcome:
        """All stages of a fresh instance."""
        return run_stages(self.fresh(), batch)

    def batch(self, seed: int, **options: Any) -> Batch:
        """A random batch that brings what the rule declares."""
        return random_batch(seed=seed, needs=self.declared.needs, **options)


def assert_same(actual: Tensor, expected: Tensor, message: str) -> None:
    """Equal up to float64 rounding."""
    difference = float((actual - expected).abs().max()) if actual.numel() else 0.0
    scale = 1.0 + float(expected.abs().max()) if expected.numel() else 1.0
    assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9 * scale), f"{message} (largest difference {difference:.3g})"
