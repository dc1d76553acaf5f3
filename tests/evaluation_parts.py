"""A policy that answers without a network, for tests of the evaluation."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from gmc.engines.base import Completion, Engine, Sampling
from gmc.environments.build import build_environment
from gmc.evaluation.results import Result
from gmc.evaluation.runner import evaluate
from gmc.evaluation.spec import EvalSpec, Task
from gmc.evaluation.subjects import Subject
from gmc.models import embedded_model_path
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.benchmarks import Benchmark
from gmc.problems.load import problem_set
from gmc.rewards.build import build_reward


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    """The embedded model's tokenizer."""
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(embedded_model_path())
    return loaded


def sums(count: int) -> ProblemSet:
    """`count` different problems; the answer of problem i is i + 10."""
    return problem_set("sums", [Problem(f"p{i}", f"What is ${i}+10$?", str(i + 10), "sum") for i in range(count)])


def benchmark(name: str = "sums") -> Benchmark:
    """A benchmark of any size."""
    return Benchmark(name, None, None, (), None, None, "arithmetic-v1", 4)


class ScriptedEngine(Engine):
    """Answers "What is $i+10$?" rightly with probability `skill`, from the seed.

    interrupt: called with the number of each call, before it is answered.
    """

    name, version = "scripted", "1"

    def __init__(self, skill: float = 0.5, interrupt: Callable[[int], None] = lambda call: None) -> None:
        self.skill, self.interrupt = skill, interrupt
        self.calls: list[tuple[int, int, Sampling]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        self.calls.append((len(prompts), group_size, sampling))
        self.interrupt(len(self.calls))
        groups = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            first = int(str(tokenizer().decode(prompt)).split("$")[1].split("+")[0])
            draws = [random.Random(f"{seed}/{sample}/{sampling.temperature}") for sample in range(group_size)]
            groups.append([self._answer(first + 10, draw) for draw in draws])
            if progress is not None:
                progress(group_size)
        return groups

    def _answer(self, gold: int, draw: random.Random) -> Completion:
        luck = draw.random()
        if luck < self.skill:
            text = rf"\boxed{{{gold}}}"
        elif luck < 0.9:
            text = rf"\boxed{{{gold + draw.randint(1, 2)}}}"
        else:
            text = "" if luck < 0.95 else "no idea"
        ids = list(tokenizer()(text)["input_ids"])
        return Completion(ids, [-1.0] * len(ids), "length" if text == "no idea" else "stop")

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        raise AssertionError("an evaluation never changes weights")

    def close(self) -> None:
        pass


def subject(**changes: Any) -> Subject:
    """A policy of a run."""
    values: dict[str, Any] = {
        "label": "v000007",
        "source": "x",
        "version": 7,
        "weights_hash": "w" * 64,
        "tokenizer_hash": "t" * 64,
        "run_id": "run",
    }
    return Subject(**{**values, **changes})


def run(
    directory: Path,
    *,
    engine: Engine | None = None,
    problems: ProblemSet | None = None,
    resume: bool = False,
    fit_length: bool = False,
    policy: Subject | None = None,
    **spec: Any,
) -> Result:
    """Evaluate the scripted policy on sums."""
    asked = EvalSpec(**{"benchmark": "sums", "template_id": "arithmetic-v1", "samples": 4, "batch_sequences": 12, **spec})
    with build_reward(["math"]) as reward:
        return evaluate(
            engine or ScriptedEngine(),
            tokenizer(),
            Task(benchmark(), problems or sums(10), asked, build_environment(asked.environment), fit_length),
            subject=policy or subject(),
            reward=reward,
            directory=directory,
            resume=resume,
        )
