"""One pass and two passes of a network in parts, and one process beside them; one rank of it.

    python -m torch.distributed.run --nproc-per-node 2 tests/lockstep_ranks.py FOLDER

Rank 0 writes what it found to `found.json`: a list of cases.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import test_scoring_one_pass as few
import torch
from tiny_models import tiny_model
from torch import Tensor

from gmc.parameters.sharded import Sharded
from gmc.ranks import Ranks, joined_ranks
from gmc.scoring.dealing import NULL
from gmc.scoring.scorer import Scorer

PROMPTS, RESPONSES = few.PROMPTS * 4, few.RESPONSES * 4
"""So many groups that not all of them hang together over the parts that ranks have of them."""


def by_group(logp_BT: Tensor) -> Tensor:
    total_P1 = logp_BT.reshape(len(PROMPTS), -1).sum(1, keepdim=True)
    return (logp_BT.reshape(len(PROMPTS), -1) * total_P1 / 1000 + 0.1).reshape(logp_BT.shape)


WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "token": lambda logp_BT: 0.1 + logp_BT / 100,
    "sequence": lambda logp_BT: (0.1 + logp_BT.sum(1, keepdim=True) / 1000).expand_as(logp_BT).contiguous(),
    "group": by_group,
}
"""Gradients that depend on a token's log-prob, on all of its response's, and on all of its group's."""


class Passes(Sharded):
    """Counts them."""

    passes = 0

    def run(self, body: Any) -> Any:
        self.passes += 1
        return super().run(body)


def gradient_of(parameters: Sharded) -> list[Tensor]:
    return [each.grad.full_tensor() for each in parameters._sharded.values()]


def in_one_process(budget: int, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
    model = tiny_model()
    forward = Scorer(model, token_budget=budget).forward(PROMPTS, RESPONSES)
    forward.backward(weigh(forward.logp_BT))
    return forward.logp_BT, [each.grad for each in model.network.parameters() if each.grad is not None]


def case(ranks: Ranks, budget: int, checkpointing: bool, scope: str) -> dict[str, Any]:
    weigh = WEIGHTS[scope]
    model = tiny_model()
    parameters = Passes(model, ranks, "cpu", None)
    with parameters.whole():
        scorer = Scorer(model, token_budget=budget, parameters=parameters, checkpointing=checkpointing)
    parameters.clear()
    parameters.passes = 0
    double = scorer.forward(PROMPTS, RESPONSES)
    double.backward(weigh(double.logp_BT))
    expected, more, parameters.passes = gradient_of(parameters), parameters.passes, 0
    parameters.clear()
    single = scorer.forward_once(PROMPTS, RESPONSES, weigh=lambda logp_BT, known_B: weigh(logp_BT))
    passed = single.has_passed(weigh(single.logp_BT))
    if not passed:
        single.backward(weigh(single.logp_BT))
    found, fewer = gradient_of(parameters), parameters.passes
    alone_BT, alone = in_one_process(budget, weigh)
    steps = scorer.steps(PROMPTS, RESPONSES)
    parameters.close()
    return {
        "scope": scope,
        "budget": budget,
        "passed": passed,
        "same log-probs": torch.equal(single.logp_BT, double.logp_BT),
        "same gradient": all(map(torch.equal, found, expected)),
        "log-probs apart": float((single.logp_BT - alone_BT).abs().max()),
        "gradient apart": max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, alone, strict=True)),
        "passes": [fewer, more],
        "null": any(NULL in plan for plan in steps.plans),
        "steps": len({len(plan) for plan in steps.plans}) == 1,
    }


def main() -> None:
    torch.set_num_threads(1)
    with joined_ranks() as ranks:
        wanted = [(budget, checkpointing, scope) for budget in (25, 40) for checkpointing in (False, True) for scope in WEIGHTS]
        found = [case(ranks, *each) for each in wanted]
        everywhere = ranks.collect(found)
        if ranks.is_rank_0:
            Path(sys.argv[1], "found.json").write_text(json.dumps([one for rank in everywhere for one in rank]))


if __name__ == "__main__":
    main()
