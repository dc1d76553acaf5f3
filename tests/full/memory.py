"""The estimate of activations beside a count on fake tensors, for the real shapes of the recipes' models, with and without
recomputing: bytes that a micro-batch of 2,048 tokens saves in bfloat16. Half a minute."""

import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoConfig

from tests.test_recipes_fit import SHAPES, TOKENS, count_beside_line, write_configs


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_configs(Path(scratch))
        for name in SHAPES:
            for checkpointing in (True, False):
                started = time.perf_counter()
                config = AutoConfig.from_pretrained(folder / name)
                counted, line = count_beside_line(config, torch.bfloat16, checkpointing=checkpointing)
                seconds = time.perf_counter() - started
                kind = "recomputing" if checkpointing else "keeping all"
                print(
                    f"{name}, {kind}, {TOKENS} tokens: counted {counted:,} bytes, estimate {line:,} ({seconds:.0f} s)",
                    flush=True,
                )
                assert counted == line
