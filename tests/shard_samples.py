"""Legal rollouts and records for the tests of everything that reads or writes shards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gmc.store.shards.rollout import Rollout, ShardMetadata

VOCABULARY = 50

METADATA = ShardMetadata(
    run_id="run-a",
    model_id="embedded",
    weights_hash="w" * 64,
    tokenizer_hash="t" * 64,
    vocabulary_size=VOCABULARY,
    engine="transformers",
    engine_version="5.0",
    sampling={"temperature": "1.0", "max_tokens": "12"},
    template_id="plain",
    logprob_kinds=("engine", "trainer"),
    seed=3,
    group_size=3,
    gmc_version="0.1.0",
    rewards=("math(strict=True)", "length(max_tokens=12, cache=4)=0.5"),
    reward_parts=("math", "length"),
    extra={"note": "a test"},
)


def make_rollouts(groups: int = 2, batch: int = 4, version: int = 2, seed: int = 0) -> list[Rollout]:
    """Rows of whole groups with every column filled; log-probs are float32 values, so that they come back equal."""
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        prompt = rng.integers(0, VOCABULARY, 5).tolist()
        for sample in range(METADATA.group_size):
            length = int(rng.integers(1, 13))
            rows.append(
                Rollout(
                    run_id=METADATA.run_id,
                    problem_id=f"p{group}",
                    batch=batch,
                    group=group,
                    sample=sample,
                    policy_version=version,
                    prompt_token_ids=prompt,
                    response_token_ids=rng.integers(0, VOCABULARY, length).tolist(),
                    finish_reason="stop" if sample else "length",
                    reward=float(sample == 1),
                    status="correct" if sample == 1 else "unparseable",
                    answer="047",
                    prediction="47" if sample == 1 else None,
                    prompt="2 + 2 = ?",
                    response="so \\boxed{4}",
                    engine_logprobs=floats(-rng.random(length)),
                    trainer_logprobs=floats(-rng.random(length)),
                    trainer_entropies=floats(rng.random(length)),
                    launched_at=1.5,
                    ready_at=2.25,
                    response_mask=[True] * length if sample == 2 else None,
                    token_versions=[version] + [version + 1] * (length - 1) if sample == 2 else None,
                    reward_parts=[float(sample == 1), -0.5],
                    note=None if sample else "compared as text",
                    turns=["so", "no", "\\boxed{4}"] if sample == 2 else None,
                )
            )
    return rows


def floats(values: Any) -> list[float]:
    """As float32 keeps them."""
    return np.asarray(values, np.float32).astype(float).tolist()


def changed(rows: list[Rollout], row: int, **values: Any) -> list[Rollout]:
    """The rows with some values of one row replaced."""
    return [replace(item, **values) if index == row else item for index, item in enumerate(rows)]


def write_sample(directory: Path, batch: int = 4, version: int = 2, **metadata: Any) -> Path:
    """A legal shard under its contract name."""
    from gmc.store.shards.writer import write_shard

    path = directory / f"b{batch:06d}-v{version:06d}.parquet"
    record = replace(METADATA, **metadata)
    rows = [replace(row, run_id=record.run_id) for row in make_rollouts(batch=batch, version=version, seed=batch)]
    write_shard(path, rows, record)
    return path
