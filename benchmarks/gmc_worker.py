"""Times gmc's update on one shape. Told "run" on standard input, it answers with one JSON line.

python -m benchmarks.gmc_worker SHAPE FOLDER '{"clock": "wall", "checkpointing": false}'
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import meter
from benchmarks.shapes import SHAPES, vocabulary_of
from gmc.estimators.batch import Batch, Need
from gmc.estimators.registry import build_estimator
from gmc.gradients.normalize import coefficients
from gmc.models import load_model
from gmc.scoring.scorer import Scorer


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

    def update() -> dict[str, Any]:
        watch = meter.Stopwatch(options["clock"])
        meter.reset_peak()
        with watch.section("behavior"):
            behavior = scorer.score(prompts, responses)
        with watch.section("forward"):
            current = scorer.forward(prompts, responses)
        with watch.section("estimator"):
            batch = Batch(
                rewards_PG=rewards_PG,
                logp_BT=current.logp_BT.requires_grad_(),
                mask_BT=current.mask_BT,
                max_response_tokens=shape.response_tokens[1],
                update=0,
                brought={Need.BEHAVIOR_LOGP: behavior.logp_BT},
            )
            batch = batch.with_advantages(estimator.advantages(batch))
            objective_BT = estimator.objective(batch) * coefficients(
                batch.mask_BT, estimator.normalizer, shape.response_tokens[1]
            )
            (gradient_BT,) = torch.autograd.grad(-objective_BT.sum(), batch.logp_BT)
        with watch.section("backward"):
            current.backward(gradient_BT)
        with watch.section("optimizer"):
            torch.nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return {"seconds": watch.seconds, "peak": meter.peak_bytes() - baseline}

    baseline = meter.resident_bytes()
    micro_batches = scorer.plan(prompts, responses)
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
