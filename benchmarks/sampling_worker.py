"""Samples batches of the embedded model with whatever version of gmc is installed, 0.1 included, or with `model.generate`.

    python benchmarks/sampling_worker.py gmc|generate

Told "run" on standard input, it answers with one JSON line: seconds by both clocks, and tokens.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig

from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.models import LanguageModel, load_model
from gmc.problems.arithmetic import arithmetic_problems
from gmc.problems.templates import default_template, get_template

BATCHES, PROMPTS, GROUP_SIZE, MAX_TOKENS = 8, 8, 8, 64


def main() -> None:
    """Build what samples, then sample `BATCHES` batches whenever asked."""
    torch.set_num_threads(1)
    model = load_model("embedded", device="cpu")
    template = get_template(default_template("arithmetic"))
    problems = arithmetic_problems("train", BATCHES * PROMPTS)
    tokenizer = model.tokenizer
    prompts = [template.encode(template.render(problem.question, tokenizer), tokenizer) for problem in problems]
    sample = {"gmc": by_gmc, "generate": by_generate}[sys.argv[1]](model, prompts)
    sample(0)
    print(json.dumps({"ready": True}), flush=True)
    for turn, line in enumerate(sys.stdin, start=1):
        if line.strip() == "run":
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = sample(turn)
            seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            print(json.dumps({"seconds": seconds, "tokens": tokens}), flush=True)


def by_gmc(model: LanguageModel, prompts: list[list[int]]) -> Callable[[int], int]:
    """As many batches in one call as this version samples together for the initial policy; 0.1 took them one by one."""
    engine: Any = TransformersEngine(model)
    at_once = engine.batches_at_once(PROMPTS * GROUP_SIZE) if hasattr(engine, "batches_at_once") else 1
    width = PROMPTS * at_once

    def sample(turn: int) -> int:
        tokens = 0
        for start in range(0, len(prompts), width):
            asked = prompts[start : start + width]
            seeds = [1000 * turn + start + index for index in range(len(asked))]
            groups = engine.generate(asked, group_size=GROUP_SIZE, sampling=Sampling(max_tokens=MAX_TOKENS), seeds=seeds)
            tokens += sum(len(completion.token_ids) for group in groups for completion in group)
        return tokens

    return sample


def by_generate(model: LanguageModel, prompts: list[list[int]]) -> Callable[[int], int]:
    """What one writes first: every prompt repeated, batch by batch."""
    end, pad = sorted(model.end_token_ids), model.tokenizer.pad_token_id or 0
    settings = GenerationConfig(
        max_new_tokens=MAX_TOKENS, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=end, pad_token_id=pad
    )

    def sample(turn: int) -> int:
        tokens = 0
        for start in range(0, len(prompts), PROMPTS):
            rows = [prompt for prompt in prompts[start : start + PROMPTS] for _ in range(GROUP_SIZE)]
            width = max(map(len, rows))
            ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
            response = model.network.generate(ids, attention_mask=mask, generation_config=settings)[:, width:]
            ended = torch.isin(response, torch.tensor(end)).int()
            tokens += int(((ended.cumsum(-1) - ended) == 0).sum())
        return tokens

    return sample


if __name__ == "__main__":
    main()
