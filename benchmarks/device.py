"""What a GPU has to prove, in a few minutes: attention, the memory plan, vLLM with its proof of weights, policies in 16 bits.

    python -m benchmarks.device [--shape "long, 1.7B"] [--json FILE]

Each check prints its figures and whether it holds; the exit status is 1 when one does not. Where there is no GPU or no vLLM, a
check runs as far as it can on a CPU and says what it left out.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import meter
from benchmarks.shapes import SHAPES, Shape, write_model
from gmc.engines.base import Sampling
from gmc.errors import GmcError
from gmc.models import LanguageModel, load_model, private_copy
from gmc.resolving.memory import GIB, fitted_plan
from gmc.resolving.resolve import resolve_settings
from gmc.scoring import varlen
from gmc.scoring.attention import repeated_prompt_attention
from gmc.scoring.packing import pack
from gmc.scoring.plan import make_plan
from gmc.scoring.scorer import Scorer
from gmc.store.policies import publish_policy

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
UNUSED_IDS = 5
"""Rows of the head beyond the tokenizer, as Qwen3 has them."""

ROUNDING = 2e-2
"""Largest relative error of bfloat16 attention and its gradients."""

Found = dict[str, Any]


def attention(shape: Shape, model: LanguageModel, folder: Path) -> Found:
    """The variable-length kernel in bfloat16 against padded attention in float32: output and gradients, relative errors."""
    prompts, responses = shape.batch(model.vocabulary_size)
    lengths = [[len(response) for response in group] for group in responses]
    (micro_batch,) = make_plan(list(map(len, prompts)), lengths, 10**9)
    layout = pack(micro_batch, prompts, responses, DEVICE).layout
    config, tokens = model.network.config, micro_batch.tokens
    generator = torch.Generator(DEVICE).manual_seed(0)
    heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads, config.num_attention_heads)
    shapes = [(tokens, count, config.head_dim) for count in heads]
    *inputs, grad = (torch.randn(each, generator=generator, device=DEVICE) for each in shapes)
    half, scale = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32, config.head_dim**-0.5
    inputs = [each.to(half) for each in inputs]

    def run(tensors: list[torch.Tensor], kernel: Callable[[list[torch.Tensor]], torch.Tensor]) -> list[torch.Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        output = kernel(leaves)
        return [output.detach(), *torch.autograd.grad(output, leaves, grad.to(output.dtype))]

    with nullcontext() if DEVICE.type == "cuda" else _double():
        ours = run(inputs, lambda leaves: varlen.varlen_attention(*leaves, layout.spans, scale))
    wanted = run([each.float() for each in inputs], lambda leaves: repeated_prompt_attention(*leaves, layout, scale))
    errors = [((one.float() - other).norm() / other.norm()).item() for one, other in zip(ours, wanted, strict=True)]
    return {"holds": max(errors) <= ROUNDING, "errors of output, query, key, value": errors, "kernel": DEVICE.type == "cuda"}


def memory(shape: Shape, model: LanguageModel, folder: Path) -> Found:
    """The plan's activations and logits against the peak of a micro-batch as large as the plan says."""
    assignments = [f"model.source={folder}", f"model.device={DEVICE.type}", f"rollout.max_tokens={shape.response_tokens[1]}"]
    settings = resolve_settings(assignments=[*assignments, f"train.tokens_per_micro_batch={shape.token_budget}"])
    capacity = torch.cuda.mem_get_info()[1] if DEVICE.type == "cuda" else 80 * GIB
    plan = fitted_plan(settings, capacity)
    planned = plan.parts["activations"] + plan.parts["logits"]
    responses = [[[3 + place % 50 for place in range(plan.micro_batch_tokens // 4 - 4)] for _ in range(4)]]
    dtype = torch.bfloat16 if settings.model.compute_dtype == "bfloat16" else None
    scorer = Scorer(model, token_budget=plan.micro_batch_tokens, compute_dtype=dtype, checkpointing=plan.checkpointing)
    for parameter in model.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = meter.resident_bytes()
    meter.reset_peak()
    current = scorer.forward([[1, 2, 3]], responses)
    current.backward(torch.ones_like(current.logp_BT))
    meter.synchronize()
    peak = meter.peak_bytes() - before
    model.network.zero_grad(set_to_none=True)
    figures = {"planned GiB": planned / GIB, "peak GiB": peak / GIB, "tokens": plan.micro_batch_tokens}
    return {"holds": peak <= planned or DEVICE.type == "cpu", **figures, "peak is a GPU's": DEVICE.type == "cuda"}


def vllm(shape: Shape, model: LanguageModel, folder: Path) -> Found:
    """vLLM starts with a padded head, never samples an id beyond the tokenizer, and its proof tells one small update."""
    try:
        from gmc.engines.vllm import VllmEngine

        started = time.perf_counter()
        engine = VllmEngine(model, compute_dtype=torch.bfloat16, log_file=folder / "vllm.log", memory_share=0.35)
    except GmcError as error:
        return {"holds": DEVICE.type == "cpu", "left out": str(error)}
    found: Found = {"start s": time.perf_counter() - started, "version": engine.version, "proved share": engine.proved_share}
    try:
        prompts, _ = shape.batch(model.vocabulary_size)
        sampling = Sampling(max_tokens=shape.response_tokens[1])
        started = time.perf_counter()
        groups = engine.generate(prompts, group_size=shape.group_size, sampling=sampling, seeds=list(range(len(prompts))))
        responses = [completion.token_ids for group in groups for completion in group]
        found["tokens/s"] = sum(map(len, responses)) / (time.perf_counter() - started)
        found["only ids of the tokenizer"] = max(map(max, responses)) < model.vocabulary_size
        rounded = load_model(publish_policy(private_copy(model, torch.bfloat16), folder / "policies", 1, "device"))
        started = time.perf_counter()
        engine.load_weights({name: tensor.to(DEVICE) for name, tensor in rounded.weights().items()})
        found["hand-over of a 16-bit policy s"] = time.perf_counter() - started
        found["stale weights are told"] = _is_told(engine, _one_update_later(model))
    finally:
        engine.close()
    return {"holds": found["only ids of the tokenizer"] and found["stale weights are told"], **found}


def _one_update_later(model: LanguageModel) -> dict[str, torch.Tensor]:
    """Each weight a millionth up or down, as an optimizer's step at a rate of 1e-6.

    The policy's weights are float32, where no such step vanishes; of their bfloat16 casts about one in a hundred changes.
    """
    generator = torch.Generator(DEVICE).manual_seed(0)
    return {
        name: weight + 1e-6 * torch.randn(weight.shape, generator=generator, device=weight.device).sign()
        for name, weight in model.weights().items()
    }


def _is_told(engine: Any, moved: dict[str, torch.Tensor]) -> bool:
    """Whether an engine that leaves its weights as they are is found out."""
    from gmc.engines.vllm_worker import WeightsExtension

    with mock.patch.object(WeightsExtension, "gmc_take_weights", return_value=None):
        try:
            engine.load_weights(moved)
        except GmcError as error:
            return "does not hold the weights" in str(error)
    return False


def _double() -> Any:
    """torch's kernel played on a CPU."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    import varlen_double

    return mock.patch.object(varlen, "operators", return_value=(varlen_double.forward, varlen_double.backward))


CHECKS = {"attention": attention, "memory": memory, "vllm": vllm}


def main() -> int:
    """Run every check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="long, 1.7B" if DEVICE.type == "cuda" else "smoke")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    result: Found = {"machine": meter.machine(), "checks": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_model(shape.model, Path(scratch), unused_ids=UNUSED_IDS)
        model = load_model(folder, device=DEVICE.type)
        for name, check in CHECKS.items():
            result["checks"][name] = check(shape, model, folder)
    meter.publish(result, arguments.json)
    return 0 if all(found["holds"] for found in result["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
