"""Times gmc's update on one shape. Told "run" on standard input, it answers with one JSON line.

python -m benchmarks.gmc_worker SHAPE FOLDER '{"clock": "wall", "checkpointing": false}'
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import meter
from benchmarks.shapes import SHAPES, vocabulary_of
from gmc.estimators.batch import Batch, Need
from gmc.estimators.registry import build_estimator
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import objective_weights, token_gradient
from gmc.gradients.weighing import Weighing
from gmc.models import load_model
from gmc.scoring.scorer import Scorer, Scores, sampled_mask


def main() -> None:
    """Build everything, say so, then run updates until standard input ends."""
    shape, folder, options = SHAPES[sys.argv[1]], Path(sys.argv[2]), json.loads(sys.argv[3])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(folder, device=device)
    dtype = torch.bfloat16 if options.get("bfloat16") else None
    scorer = Scorer(
        model,
        token_budget=options.get("token_budget", shape.token_budget),
        compute_dtype=dtype,
        share_prompts=options.get("share_prompts", True),
        checkpointing=options.get("checkpointing", False),
        compiled=options.get("compiled", False),
    )
    optimizer = _optimizer(model.network.parameters(), options.get("adamw8bit", False))
    estimator = build_estimator("gmc", {})
    prompts, responses = shape.batch(vocabulary_of(folder))
    rewards_PG = shape.rewards().to(device)
    for parameter in model.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    mask_BT = sampled_mask(responses, None, model.device)

    def assembled(behavior: Scores) -> Batch:
        return Batch(
            rewards_PG=rewards_PG,
            logp_BT=torch.zeros(mask_BT.shape, device=mask_BT.device),
            mask_BT=mask_BT,
            max_response_tokens=shape.response_tokens[1],
            update=1,
            brought={Need.BEHAVIOR_LOGP: behavior.logp_BT},
        )

    def update() -> dict[str, Any]:
        """As in `gmc.training.update` for rollouts of an earlier policy, after the scoring that each had when it was made."""
        watch = meter.Stopwatch(options["clock"])
        meter.reset_peak()
        with watch.section("behavior"):
            behavior = scorer.score(prompts, responses)
        weigh = Weighing().of(estimator, 1, lambda: assembled(behavior), estimator.normalizer)

        def timed_weigh(logp_BT: torch.Tensor, known_B: torch.Tensor) -> torch.Tensor:
            with watch.section("estimator"):
                return weigh(logp_BT, known_B)

        with watch.section("passes"):
            scorer.parameters.clear()
            current = scorer.forward_once(prompts, responses, weigh=timed_weigh)
        in_passing = watch.seconds.get("estimator", 0.0)
        with watch.section("estimator"):
            batch = replace(assembled(behavior), logp_BT=current.logp_BT.requires_grad_())
            tokens = token_gradient(RuleCalls(estimator, 1), batch)
            gradient_BT = -objective_weights(tokens, estimator.normalizer)
        with watch.section("passes"):
            if not current.has_passed(gradient_BT):
                current.backward(gradient_BT)
        watch.seconds["passes"] -= in_passing
        with watch.section("optimizer"):
            torch.nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
            optimizer.step()
        return {"seconds": watch.seconds, "peak": meter.peak_bytes() - baseline}

    baseline = meter.resident_bytes()
    micro_batches = scorer.steps(prompts, responses).plan
    meter.reply(
        {
            "state": baseline,
            "micro_batches": len(micro_batches),
            "input_tokens": sum(part.tokens for part in micro_batches),
            "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
            "head_parameters": model.network.get_output_embeddings().weight.numel(),
            "matmul_flops": meter.matmul_flops(dtype or torch.float32, device, options["clock"]),
        }
    )
    for line in sys.stdin:
        if line.strip() == "run":
            meter.reply(update())


def _optimizer(parameters: Any, eight_bits: bool) -> torch.optim.Optimizer:
    if not eight_bits:
        return torch.optim.AdamW(parameters, lr=1e-6, fused=True)
    import bitsandbytes

    optimizer: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(parameters, lr=1e-6)
    return optimizer


if __name__ == "__main__":
    main()
