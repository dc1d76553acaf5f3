"""What a rule's own arithmetic costs beside one update of the model.

    python -m benchmarks.estimators [--shape paper-like] [--repeats 3] [--json FILE]

An update here is forward and backward of the batch, without sampling and without the optimizer, so the shares are upper bounds.
A rule's time is its advantages, objective, ∂/∂log π and learning-rate scale. Score norms, which a rule may ask for, are
timed once, apart. All installed rules are timed.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import meter
from benchmarks.shapes import SHAPES, Shape, vocabulary_of, write_model
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.estimators.registry import list_estimators
from gmc.models import load_model
from gmc.scoring.scorer import Scorer
from gmc.testing import run_stages


def brought(logp_BT: torch.Tensor, mask_BT: torch.Tensor) -> dict[Need, torch.Tensor]:
    """Something of the right shape for every need: token ratios spread by 0.05, lags of 64."""
    generator = torch.Generator(logp_BT.device).manual_seed(0)
    noise_BT = 0.05 * torch.randn(logp_BT.shape, generator=generator, device=logp_BT.device)
    return {
        Need.BEHAVIOR_LOGP: logp_BT + noise_BT,
        Need.LAGS: torch.full_like(logp_BT, 64.0),
        Need.BEHAVIOR_ENTROPY: torch.ones_like(logp_BT),
        Need.ANCHOR_LOGP: logp_BT + 0.5 * noise_BT,
        Need.SCORE_NORMS: mask_BT.sum(-1).double().log(),
        Need.PLANNED_UPDATES: torch.tensor(800),
    }


def measure(shape: Shape, folder: Path, repeats: int) -> dict[str, Any]:
    """Seconds of an update, of score norms and of every rule, in turn; the medians."""
    model = load_model(folder, device="cuda" if torch.cuda.is_available() else "cpu")
    scorer = Scorer(model, token_budget=shape.token_budget)
    prompts_P, responses_PG = shape.batch(vocabulary_of(folder))
    scores = scorer.score(prompts_P, responses_PG)
    values = brought(scores.logp_BT, scores.mask_BT)
    rewards_PG = shape.rewards().to(scores.logp_BT.device)

    def update() -> None:
        current = scorer.forward(prompts_P, responses_PG)
        current.backward(torch.ones_like(current.logp_BT))
        model.network.zero_grad()

    def timed_rule(rule: Estimator) -> Callable[[], float]:
        def run() -> float:
            leaf_BT = scores.logp_BT.clone().requires_grad_()
            batch = Batch(rewards_PG, leaf_BT, scores.mask_BT, shape.response_tokens[1], 900, values)
            return meter.timed(lambda: run_stages(rule, batch))

        run()
        return run

    rules = [found.estimator() for found in list_estimators() if found.estimator is not None]
    contenders: dict[str, Callable[[], float]] = {
        "update": lambda: meter.timed(update),
        **{rule.name: timed_rule(rule) for rule in rules},
    }
    seconds = {name: meter.median(times) for name, times in meter.interleaved(contenders, repeats).items()}
    seconds["score norms"] = meter.timed(lambda: scorer.log_score_norms(prompts_P, responses_PG))
    whole = seconds["update"]
    rows = [{"what": name, "ms": 1e3 * value, "% of an update": 100 * value / whole} for name, value in seconds.items()]
    return {"shape": shape.name, "tokens": int(scores.mask_BT.sum()), "machine": meter.machine(), "rows": rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[name for name in SHAPES if name != "embedded"], default="paper-like")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    with tempfile.TemporaryDirectory() as folder:
        result = measure(shape, write_model(shape.model, Path(folder)), arguments.repeats)
    meter.show(f"{result['tokens']} response tokens, {shape.name}", result["rows"])
    meter.publish(result, arguments.json)


if __name__ == "__main__":
    main()
