"""A rule's weights for some groups of a batch before the rest is scored, so that their backward pass can follow at once."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import objective_weights, token_gradient
from gmc.registry import in_one_line

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartWeights:
    """∂loss/∂logp of the groups whose log-probs are known. assembled: gives the batch, with any log-probs; called when needed.

    The rule is called on the whole batch all the same, in which unknown rows stand at ratio 1: shapes, normalizers and the
    order of every sum are those of the final call, and so are the bits of what is known. `rule` is a copy whose state goes
    nowhere; the rule itself is called once on the batch as it is, and what it then says is compared.
    """

    rule: RuleCalls
    assembled: Callable[[], Batch]
    normalizer: Normalizer

    @cached_property
    def batch(self) -> Batch:
        """The batch, assembled once."""
        return self.assembled()

    def __call__(self, logp_BT: Tensor, known_B: Tensor) -> Tensor:
        """grad_BT, of which rows not in `known_B` mean nothing."""
        unknown_BT = self.batch.brought.get(Need.BEHAVIOR_LOGP, torch.zeros_like(logp_BT))
        assumed_BT = torch.where(known_B[:, None], logp_BT, unknown_BT)
        batch = replace(self.batch, logp_BT=assumed_BT.detach().requires_grad_())
        return -objective_weights(token_gradient(self.rule, batch), self.normalizer)


@dataclass
class Weighing:
    """Decides whether a rule may be asked group by group, and remembers when that went wrong."""

    _refused: bool = field(default=False, init=False)

    def of(
        self, estimator: Estimator, update: int, assembled: Callable[[], Batch], normalizer: Normalizer
    ) -> PartWeights | None:
        """What weighs single groups; None for a rule whose weights look at the whole batch, by its `scope` or in fact."""
        if self._refused or estimator.scope == "batch":
            return None
        try:
            apart = copied(estimator)
        except Exception as error:  # a rule may hold anything, a lock or a file for instance; it then sees whole batches alone
            self._refuse(estimator, f"it cannot be copied ({in_one_line(error)})")
            return None
        return PartWeights(RuleCalls(apart, update), assembled, normalizer)

    def found_wrong(self, estimator: Estimator) -> None:
        """The rule gave the whole batch other weights than its groups: it is asked for whole batches from now on."""
        self._refuse(
            estimator, f"its scope is {estimator.scope!r}, but its weights depend on the rest of the batch or on chance"
        )

    def _refuse(self, estimator: Estimator, why: str) -> None:
        self._refused = True
        log.warning("estimator %s: %s; each update runs its batch forward twice, with the same result", estimator.name, why)


def copied(estimator: Estimator) -> Estimator:
    """A copy that may be called without a trace. Tensors of the rule's state are shared: they can be as large as the model."""
    kept = list(estimator.state_dict().values())
    return copy.deepcopy(estimator, {id(tensor): tensor for tensor in kept})
