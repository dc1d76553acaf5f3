"""`gmc rollout --engine vllm` beside bare vLLM, the hand-over of weights, and what shards cost.

    python -m benchmarks.rollout_vllm [--model embedded] [[--prompts 8] [--group-size 8] [--max-tokens 64] [--repeats 5]

Both sides use one running vLLM and the same prompts, in turn. Bare: `LLM.generate` with n, temperature and the sampled
token's log-prob, without seeds. gmc: sampling, grading and writing the shard; the trainer's scoring is timed apart.
`--clock cpu` counts the CPU seconds of this process, which say more on a busy machine (with OMP_NUM_THREADS=1; grading in
other processes is then not counted).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gmc.engines.vllm import VllmEngine
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.resolving.resolve import resolve_settings
from gmc.store.shards.writer import write_shard

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
NOW = CLOCKS["wall"]


class Timed:
    """Adds up the seconds spent in wrapped functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted under `name`."""

        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = NOW()
            try:
                return function(*arguments, **keywords)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + NOW() - started

        return timed


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One record per repeat and their medians; a first repeat, which compiles, is left out."""
    settings = resolve_settings(
        assignments=[
            "rollout.engine=vllm",
            f"model.source={options.model}",
            f"model.compute_dtype={options.dtype}",
            f"rollout.prompts={options.prompts}",
            f"rollout.group_size={options.group_size}",
            f"rollout.max_tokens={options.max_tokens}",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        model = build_model(settings)
        started = NOW()
        engine = build_engine(settings, model, Path(folder) / "vllm.log")
        assert isinstance(engine, VllmEngine)
        start_seconds = NOW() - started
        maker = build_maker("benchmark", settings, model, build_scorer(settings, model), engine)
        repeats = [_repeat(maker, engine, batch, Path(folder)) for batch in range(options.repeats + 1)][1:]
        maker.reward.close()
        engine.close()
    names = repeats[0].keys()
    return {
        "settings": {name: value for name, value in vars(options).items() if name != "json"},
        "start_seconds": start_seconds,
        "median": {name: statistics.median(record[name] for record in repeats) for name in names},
        "repeats": repeats,
    }


def _repeat(maker: Any, engine: VllmEngine, batch: int, folder: Path) -> dict[str, float]:
    """Bare vLLM, then gmc, on the prompts of one launch batch.."""
    timed = Timed()
    parts = {"sample": (engine, "generate"), "grade": (maker.reward, "score"), "score": (maker.scorer, "score")}
    originals = {name: getattr(owner, attribute) for name, (owner, attribute) in parts.items()}
    for name, (owner, attribute) in parts.items():
        setattr(owner, attribute, timed.wrap(name, originals[name]))
    started = NOW()
    engine.load_weights(maker.model.weights())
    hand_over = NOW() - started
    maker._handed_over = 0
    engine._drop_caches()
    started = NOW()
    rows = maker.make(batch, 0)
    metadata_started = NOW()
    metadata = maker.metadata()
    metadata_seconds = NOW() - metadata_started
    write_started = NOW()
    write_shard(folder / f"b{batch}.parquet", rows, metadata)
    write = NOW() - write_started
    total = NOW() - started
    for name, (owner, attribute) in parts.items():
        setattr(owner, attribute, originals[name])
    tokens = sum(len(row.response_token_ids) for row in rows)
    bare_seconds, bare_tokens = _bare(maker, engine, rows)
    without_scoring = total - timed.seconds["score"] - metadata_seconds
    bare_rate = bare_tokens / bare_seconds
    return {
        "bare_tokens_per_second": bare_rate,
        "gmc_tokens_per_second": tokens / without_scoring,
        "gmc_share_of_bare": tokens / without_scoring / bare_rate,
        "sample_seconds": timed.seconds["sample"],
        "grade_seconds": timed.seconds["grade"],
        "score_seconds": timed.seconds["score"],
        "write_seconds": write,
        "write_share": write / without_scoring,
        "hash_seconds_a_version": metadata_seconds,
        "hand_over_seconds": hand_over,
    }


def _bare(maker: Any, engine: VllmEngine, rows: Any) -> tuple[float, int]:
    from vllm import SamplingParams

    settings = maker.settings.rollout
    prompts = [{"prompt_token_ids": row.prompt_token_ids} for row in rows if row.sample == 0]
    params = SamplingParams(
        n=settings.group_size,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        stop_token_ids=sorted(maker.model.end_token_ids),
        stop=list(maker.template.stop) or None,
        logprobs=0,
    )
    engine._drop_caches()
    started = NOW()
    outputs = engine._llm.generate(prompts, params, use_tqdm=False)
    seconds = NOW() - started
    return seconds, sum(len(sample.token_ids) for output in outputs for sample in output.outputs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    global NOW
    NOW = CLOCKS[options.clock]
    found = measure(options)
    for name, value in {"start_seconds": found["start_seconds"], **found["median"]}.items():
        print(f"{name:28} {value:.4g}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
