"""How memory grows with the vocabulary and time with the number of rows.

    python -m benchmarks.scaling [--json FILE]

Memory: peak of one forward and backward pass beyond weights and gradients, at fixed tokens, each vocabulary in a process of
its own; the float32 gradient of the head, which the backward pass holds a second time before adding it, is listed apart.
Time: one forward and backward pass over 1, 2, 4, 8 and 16 groups of the same lengths.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks import meter
from gmc.models import LanguageModel
from gmc.scoring.scorer import Scorer

VOCABULARIES = (10_000, 50_000, 150_000)
HIDDEN, PROMPT, GROUP_SIZE, RESPONSE = 128, 64, 8, 96


def main() -> None:
    """Parse the command line, measure, print tables on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--vocabulary", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.vocabulary:
        meter.reply(memory(arguments.vocabulary))
        return
    result = {"machine": meter.machine(), "memory": measure_memory(), "rows": measure_rows(arguments.repeats)}
    meter.publish(result, arguments.json)


def measure_memory() -> list[dict[str, Any]]:
    """One process a vocabulary."""
    rows = []
    for vocabulary in VOCABULARIES:
        command = [sys.executable, "-m", "benchmarks.scaling", "--vocabulary", str(vocabulary)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
    meter.show(f"peak memory, micro-batches of {GROUP_SIZE * RESPONSE} response tokens", rows)
    return rows


def memory(vocabulary: int) -> dict[str, Any]:
    """Peak memory beyond weights and gradients of one pass over four groups."""
    model = _model(vocabulary)
    scorer = Scorer(model, token_budget=1024)
    batch = _batch(4, vocabulary)
    _pass(scorer, *_batch(1, vocabulary))
    before = meter.resident_bytes()
    meter.reset_peak()
    _pass(scorer, *batch)
    peak = meter.peak_bytes() - before
    head = 4 * vocabulary * HIDDEN
    full_logits = 4 * vocabulary * 4 * GROUP_SIZE * RESPONSE
    return {
        "vocabulary": vocabulary,
        "peak MB": peak / 1e6,
        "of it a second head gradient MB": head / 1e6,
        "activations MB": (peak - head) / 1e6,
        "full logits would be MB": full_logits / 1e6,
    }


def measure_rows(repeats: int) -> list[dict[str, Any]]:
    """Seconds by number of groups, and seconds a group."""
    scorer = Scorer(_model(1000))
    batches = {groups: _batch(groups, 1000) for groups in (1, 2, 4, 8, 16)}
    contenders = {
        str(groups): lambda batch=batch: meter.timed(lambda: _pass(scorer, *batch)) for groups, batch in batches.items()
    }
    meter.interleaved(contenders, 1)
    seconds = {name: meter.median(values) for name, values in meter.interleaved(contenders, repeats).items()}
    rows = [{"groups": int(name), "s": value, "s a group": value / int(name)} for name, value in seconds.items()]
    meter.show("time by number of groups", rows)
    return rows


def _model(vocabulary: int) -> LanguageModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=HIDDEN, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    network = LlamaForCausalLM(config).eval()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return LanguageModel(network, PreTrainedTokenizerBase(), "scaling", frozenset(), vocabulary)


def _batch(groups: int, vocabulary: int) -> tuple[list[list[int]], list[list[list[int]]]]:
    generator = torch.Generator().manual_seed(0)

    def tokens(length: int) -> list[int]:
        return torch.randint(vocabulary, (length,), generator=generator).tolist()

    return [tokens(PROMPT) for _ in range(groups)], [[tokens(RESPONSE) for _ in range(GROUP_SIZE)] for _ in range(groups)]


def _pass(scorer: Scorer, prompts: list[list[int]], responses: list[list[list[int]]]) -> None:
    current = scorer.forward(prompts, responses)
    current.backward(torch.full_like(current.logp_BT, 1e-6))


if __name__ == "__main__":
    main()
