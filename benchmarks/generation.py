"""Sampling and the whole embedded update, gmc beside bare transformers.

    python -m benchmarks.generation [--repeats 7] [--model embedded] [--json FILE]

Tokens per second of the in-process engine and of `model.generate` on the same 8 x 8 batch; then one whole update (generation,
log-probs, backward, AdamW) and the straightforward loop over `model.generate`, a stock forward pass and torch's AdamW.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks import meter
from gmc.engines.base import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.models import LanguageModel, load_model
from gmc.problems.arithmetic import arithmetic_problems
from gmc.problems.templates import default_template, get_template
from gmc.scoring.scorer import Scorer

PROMPTS, GROUP_SIZE, MAX_TOKENS = 8, 8, 64


class Plain:
    """What one writes first: repeat every prompt, `generate`, one padded forward pass over everything, loss, step."""

    def __init__(self, model: LanguageModel, prompts: list[list[int]]) -> None:
        self.network = model.network
        self.end = sorted(model.end_token_ids)
        self.pad = model.tokenizer.pad_token_id or 0
        width = max(map(len, prompts))
        rows = [prompt for prompt in prompts for _ in range(GROUP_SIZE)]
        self.ids = torch.tensor([[self.pad] * (width - len(row)) + row for row in rows], device=model.device)
        self.mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-5)
        self.settings = GenerationConfig(
            max_new_tokens=MAX_TOKENS, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            eos_token_id=self.end, pad_token_id=self.pad,
        )  # fmt: skip

    def generate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sampled ids with their prompts, and the mask of the response tokens."""
        ids = self.network.generate(self.ids, attention_mask=self.mask, generation_config=self.settings)
        response = ids[:, self.ids.shape[1] :]
        ended = torch.isin(response, torch.tensor(self.end, device=ids.device)).int()
        return ids, (ended.cumsum(-1) - ended) == 0

    def update(self) -> int:
        """Generate, weigh by a random advantage, step. Returns the number of sampled tokens."""
        ids, alive = self.generate()
        mask = torch.cat((self.mask, alive.long()), dim=1)
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        width = self.ids.shape[1]
        logits = self.network(ids, attention_mask=mask, position_ids=positions).logits[:, width - 1 : -1]
        logp = logits.log_softmax(-1).gather(-1, ids[:, width:, None]).squeeze(-1)
        advantages = torch.where(torch.arange(len(ids)) % 2 == 0, 1.0, -1.0).to(logp.device)
        loss = -(advantages[:, None] * logp * alive).sum() / len(ids) / MAX_TOKENS
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return int(alive.sum())


class Ours:
    """The same with gmc's engine, scorer and fused optimizer; behavior log-probs are scored too."""

    def __init__(self, model: LanguageModel, prompts: list[list[int]]) -> None:
        self.prompts = prompts
        self.engine, self.scorer = TransformersEngine(model), Scorer(model)
        self.optimizer = torch.optim.AdamW(model.network.parameters(), lr=1e-5, fused=True)
        self.parameters = list(model.network.parameters())
        self.calls = 0

    def generate(self) -> list[list[list[int]]]:
        """Sampled responses by group."""
        self.calls += 1
        seeds = range(self.calls * PROMPTS, (self.calls + 1) * PROMPTS)
        sampling = Sampling(max_tokens=MAX_TOKENS)
        groups = self.engine.generate(self.prompts, group_size=GROUP_SIZE, sampling=sampling, seeds=seeds)
        return [[completion.token_ids for completion in group] for group in groups]

    def update(self) -> int:
        """Generate, score, weigh by a random advantage, step. Returns the number of sampled tokens."""
        responses = self.generate()
        self.scorer.score(self.prompts, responses)
        current = self.scorer.forward(self.prompts, responses)
        advantages = torch.where(torch.arange(len(current.mask_BT)) % 2 == 0, 1.0, -1.0).to(current.mask_BT.device)
        current.backward(-advantages[:, None] * current.mask_BT / len(advantages) / MAX_TOKENS)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return int(current.mask_BT.sum())


def main() -> None:
    """Parse the command line, measure, print a table on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = {"machine": meter.machine(), "rows": measure(arguments.model, arguments.repeats)}
    meter.publish(result, arguments.json)


def measure(source: str, repeats: int) -> list[dict[str, Any]]:
    """Time both ways in turn, each on its own copy of the model."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(source, device=device)
    template = get_template(default_template("arithmetic"))
    problems = arithmetic_problems("train", PROMPTS)
    tokenizer = model.tokenizer
    prompts = [template.encode(template.render(problem.question, tokenizer), tokenizer) for problem in problems]
    plain, ours = Plain(copy.deepcopy(model), prompts), Ours(model, prompts)

    def rate(call: Any, count: Any) -> float:
        results: list[Any] = []
        seconds = meter.timed(lambda: results.append(call()))
        return count(results[0]) / seconds

    def sampled(groups: list[list[list[int]]]) -> int:
        return sum(len(response) for group in groups for response in group)

    contenders = {
        "sampling, gmc": lambda: rate(ours.generate, sampled),
        "sampling, model.generate": lambda: rate(plain.generate, lambda result: int(result[1].sum())),
        "whole update, gmc": lambda: meter.timed(ours.update),
        "whole update, plain loop": lambda: meter.timed(plain.update),
    }
    meter.interleaved(contenders, 1)
    medians = {name: meter.median(values) for name, values in meter.interleaved(contenders, repeats).items()}
    rows = [
        {
            "what": "sampling, tokens/s",
            "gmc": medians["sampling, gmc"],
            "plain": medians["sampling, model.generate"],
            "gmc / plain": medians["sampling, gmc"] / medians["sampling, model.generate"],
        },
        {
            "what": "whole update, s",
            "gmc": medians["whole update, gmc"],
            "plain": medians["whole update, plain loop"],
            "gmc / plain": medians["whole update, gmc"] / medians["whole update, plain loop"],
        },
    ]
    meter.show(f"{PROMPTS} x {GROUP_SIZE} responses of up to {MAX_TOKENS} tokens, model {source}", rows)
    return rows


if __name__ == "__main__":
    main()
