"""The commands that are disturbed: short, deterministic, with everything of the real ones but the sampling network."""

import copy
import gc
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import torch

from gmc.engines.base import Completion, Engine, Sampling
from gmc.errors import UsageError
from gmc.generation.filling import fill_run
from gmc.models import LanguageModel, load_model
from gmc.problems.templates import get_template
from gmc.resolving import build
from gmc.scoring.probe import packed_mismatch
from gmc.store.run_directory import RUN_FILE, RunDirectory
from gmc.store.shards.store import RolloutStore
from tests import evaluation_parts, training_runs

SETTINGS = ("rollout.prompts=2", "rollout.group_size=2", "rollout.max_tokens=16", "train.checkpoint_every=1")


ANSWERS: dict[tuple[int, ...], str] = {}
"""The right answer by prompt."""


class DrawingEngine(Engine):
    """Answers rightly or not as seed and weights draw, so that other weights give other responses and each update learns."""

    name, summary, version, shares_weights = "drawing", "draws numbers", "1", True

    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def build(cls, settings: Any, model: Any, *, compute_dtype: Any, log_file: Path) -> "Engine":
        return cls(model)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Any = None,
    ) -> list[list[Completion]]:
        state = sum(float(tensor.sum(dtype=torch.float64)) for tensor in self._model.weights().values())
        groups = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            draw = random.Random(f"{seed}/{state!r}")
            wrong = [str(draw.randint(0, 9)) for _ in range(group_size)]
            texts = [rf"\boxed{{{ANSWERS[tuple(prompt)] if draw.random() < 0.5 else other}}}" for other in wrong]
            ids = [list(self._model.tokenizer(text)["input_ids"])[:16] for text in texts]
            groups.append([Completion(each, [-draw.random() for _ in each], "stop") for each in ids])
        return groups

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        raise AssertionError("it shares the weights")

    def close(self) -> None:
        pass


@cache
def warm() -> None:
    """Load what every fork needs once. No backward pass here: its threads do not survive a fork."""
    torch.set_num_threads(1)
    model, settings = _small(load_model("embedded")), SCENES["rollout"].settings
    every = build.build_problems(settings, build.build_rewards(settings))
    problems = every.keep(every.problems[:16], "the first of them")
    template = get_template(settings.problems.template)
    for problem in problems.problems:
        prompt = template.encode(template.render(problem.question, model.tokenizer), model.tokenizer)
        ANSWERS[tuple(prompt)] = problem.answer
    build.load_engine = lambda name: DrawingEngine  # type: ignore[assignment, misc]
    build.load_model = lambda *_, **__: model  # type: ignore[assignment]
    build.build_problems = lambda *_: problems  # type: ignore[assignment]
    build.load_engine(settings.rollout.engine)
    packed_mismatch(model)  # a forward pass imports much of torch
    evaluation_parts.tokenizer()
    pyarrow.array([1]).to_pandas()  # imports pandas
    gc.freeze()  # else a collection in a fork copies all memory


def _small(model: LanguageModel) -> LanguageModel:
    """One narrow layer with the same tokenizer: it is the files that are tried."""
    config = copy.deepcopy(model.network.config)
    vars(config).update(hidden_size=16, intermediate_size=16, num_hidden_layers=1, head_dim=8, num_attention_heads=2)
    vars(config).update(num_key_value_heads=1, layer_types=["full_attention"])
    torch.manual_seed(0)
    network = type(model.network)(config).eval()
    network.generation_config = model.network.generation_config
    return replace(model, network=network)


class Training:
    """`gmc train` at one delay: three updates, each with its checkpoint; publishing every second."""

    def __init__(self, *assignments: str) -> None:
        self._settings = training_runs.small_settings(
            *SETTINGS, "train.updates=3", "train.publish_every=2", "train.keep_checkpoints=2", *assignments
        )

    def start(self, path: Path) -> None:
        training_runs.train_run(path, self._settings)

    def finish(self, path: Path) -> None:
        run = RunDirectory.open(path) if (path / RUN_FILE).is_file() else None
        training_runs.train_run(path, self._settings, resume=run is not None and run.has_trained)

    def outcome(self, path: Path) -> Any:
        weights = hashlib.sha256(training_runs.weights_of(path)).hexdigest()
        return [weights, training_runs.metrics_of(path), (path / "used.jsonl").read_text("utf-8"), _no_leftovers(path)]


class Rollouts:
    """`gmc rollout`: three batches."""

    def __init__(self) -> None:
        self.settings = training_runs.small_settings(*SETTINGS, "rollout.batches=3")

    def start(self, path: Path) -> None:
        fill_run(path, self.settings)

    def finish(self, path: Path) -> None:
        try:
            fill_run(path, self.settings, resume=True)
        except UsageError:
            fill_run(path, self.settings)  # nothing was there yet

    def outcome(self, path: Path) -> Any:
        store = RolloutStore(path / "rollouts", RunDirectory.open(path).run_id)
        rows = [row for stored in store.list() for row in store.read(stored).rollouts]
        told = [[row.batch, row.group, row.sample, row.response_token_ids, row.reward, row.trainer_logprobs] for row in rows]
        return [told, _no_leftovers(path)]


class Evaluation:
    """`gmc eval`: ten problems in several batches."""

    def start(self, path: Path) -> None:
        evaluation_parts.run(path / "evals", batch_sequences=8)

    def finish(self, path: Path) -> None:
        evaluation_parts.run(path / "evals", batch_sequences=8, resume=True)

    def outcome(self, path: Path) -> Any:
        [scores] = (path / "evals").glob("*.json")
        record = json.loads(scores.read_text("utf-8"))
        return [
            {key: record[key] for key in sorted(record) if "seconds" not in key and "created" not in key},
            _no_leftovers(path),
        ]


def _no_leftovers(path: Path) -> list[str]:
    """Temporary names that the finishing command should have removed."""
    return [found.name for found in path.rglob(".tmp-*")]


SCENES: dict[str, Any] = {
    "train --delay 0": Training("delay=0"),
    "train --delay 1": Training("delay=1"),
    "rollout": Rollouts(),
    "eval": Evaluation(),
}
