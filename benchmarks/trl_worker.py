"""Times TRL's GRPOTrainer on the same model, prompts and responses, in an environment that has TRL and not gmc.

    python benchmarks/trl_worker.py SHAPE FOLDER '{"clock": "wall", "checkpointing": true}'

Generation is left out: the trainer's own loss gets the padded tensors that its generation step would hand over (prompts
padded left, completions padded right to the longest of the batch), in micro-batches of one group, or of
the shape's `peer_rows`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from benchmarks import meter
from benchmarks.shapes import SHAPES, vocabulary_of


def main() -> None:
    """Build the trainer, say so, then run updates until standard input ends."""
    shape, folder, options = SHAPES[sys.argv[1]], Path(sys.argv[2]), json.loads(sys.argv[3])
    on_gpu = torch.cuda.is_available()
    prompts, responses = shape.batch(vocabulary_of(folder))
    rows = shape.peer_rows or shape.group_size
    accumulated = shape.groups * shape.group_size // rows
    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=accumulated,
        num_generations=shape.group_size,
        gradient_checkpointing=options.get("checkpointing", True),
        bf16=options.get("bfloat16", False),
        use_cpu=not on_gpu,
        max_completion_length=shape.response_tokens[1],
        report_to=[],
        beta=0.0,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["t3"] * shape.groups}),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    model = trainer.model
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    trainer.current_gradient_accumulation_steps = accumulated
    groups = [_inputs(shape, prompts, responses, group, model.device) for group in range(shape.groups)]
    starts = range(0, shape.group_size, rows)
    micro_batches = [_slice(inputs, start, start + rows) for inputs in groups for start in starts]

    def update() -> dict[str, Any]:
        watch = meter.Stopwatch(options["clock"])
        meter.reset_peak()
        for inputs in micro_batches:
            with watch.section("passes"):
                with trainer.compute_loss_context_manager():
                    loss = trainer.compute_loss(model, inputs)
                loss.backward()
        with watch.section("optimizer"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return {"seconds": watch.seconds, "peak": meter.peak_bytes() - baseline}

    baseline = meter.resident_bytes()
    meter.reply({"state": baseline})
    for line in sys.stdin:
        if line.strip() == "run":
            meter.reply(update())


def _inputs(shape: Any, prompts: Any, responses: Any, group: int, device: torch.device) -> dict[str, Any]:
    width = max(map(len, prompts))
    longest = max(len(response) for group_responses in responses for response in group_responses)
    rewards = shape.rewards()[group]
    prompt = [[0] * (width - len(prompts[group])) + prompts[group]] * shape.group_size
    prompt_mask = [[0] * (width - len(prompts[group])) + [1] * len(prompts[group])] * shape.group_size
    completion = [row + [0] * (longest - len(row)) for row in responses[group]]
    completion_mask = [[1] * len(row) + [0] * (longest - len(row)) for row in responses[group]]
    return {
        "prompt_ids": torch.tensor(prompt, device=device),
        "prompt_mask": torch.tensor(prompt_mask, device=device),
        "completion_ids": torch.tensor(completion, device=device),
        "completion_mask": torch.tensor(completion_mask, device=device),
        "advantages": (rewards - rewards.mean()).to(device),
        "num_items_in_batch": torch.tensor(sum(len(row) for item in responses for row in item), device=device),
    }


def _slice(inputs: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    return {name: value[start:end] if value.ndim else value for name, value in inputs.items()}


if __name__ == "__main__":
    main()
