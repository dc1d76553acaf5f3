"""What decides an evaluation's numbers, in one place: the same description gives the same samples."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gmc.config.sampling import Sampling
from gmc.environments.base import Environment
from gmc.errors import UsageError
from gmc.evaluation.samples import GREEDY, SAMPLED
from gmc.evaluation.subjects import Subject
from gmc.problems.base import ProblemSet
from gmc.problems.benchmarks import Benchmark
from gmc.problems.templates import get_template
from gmc.store.files import strict_json
from gmc.store.run_directory import library_versions

SUBJECT_KEYS = ("weights_hash", "tokenizer_hash", "version", "run_id", "compute_dtype")


@dataclass(frozen=True)
class EvalSpec:
    """How a benchmark is asked and answered.

    samples: n of avg@n (0: greedy only); reward: what is rewarded, as `reward.parts` says it; reward_code: hashes of the files
    of its functions and of the environment's. environment: what answers the model between its turns, as
    `rollout.environment` says it. batch_sequences: responses generated in one call of the engine; it is part of the description
    because the rounding of batched arithmetic depends on it.
    """

    benchmark: str
    template_id: str
    samples: int
    greedy: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 64
    pass_k: tuple[int, ...] = ()
    seed: int = 0
    reward: tuple[str, ...] = ("math(strict=True)",)
    reward_code: tuple[str, ...] = ()
    environment: str = "single"
    batch_sequences: int = 256

    def __post_init__(self) -> None:
        """Refuse combinations without a meaning; raises `UsageError` naming the option."""
        if self.samples < 0 or (self.samples == 0 and not self.greedy):
            raise UsageError(f"--n {self.samples}: nothing to evaluate; ask for at least one sample or for --greedy")
        if self.samples > 0 and self.temperature <= 0:
            raise UsageError(
                f"--temperature {self.temperature:g} with --n {self.samples}: every sample would be the same; "
                "use --greedy --n 0 for greedy decoding alone"
            )
        for k in self.pass_k:
            if not 1 <= k <= self.samples:
                raise UsageError(f"--pass-k {k}: pass@{k} needs --n {max(k, 1)} or more samples a problem, not {self.samples}")

    @property
    def stop(self) -> tuple[str, ...]:
        """The template's stop strings."""
        return get_template(self.template_id).stop

    def decodings(self) -> list[tuple[str, int, Sampling]]:
        """(name, responses a problem, sampling values) of the n samples and of the greedy response, as far as asked for."""
        sampled = Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens, stop=self.stop)
        greedy = Sampling(temperature=0.0, max_tokens=self.max_tokens, stop=self.stop)
        asked = [(SAMPLED, self.samples, sampled), (GREEDY, int(self.greedy), greedy)]
        return [decoding for decoding in asked if decoding[1]]

    def chunk_problems(self) -> int:
        """Problems in one call of the engine (and in one part on disk)."""
        return max(1, self.batch_sequences // max(self.samples, 1))


@dataclass(frozen=True)
class Task:
    """One benchmark, ready to be run on any policy.

    environment: what answers the model, as the spec says it; whoever has the task made closes it. fit_length: shorten
    `spec.max_tokens` to what the longest prompt leaves of the model's context (noted in the result).
    """

    benchmark: Benchmark
    problems: ProblemSet
    spec: EvalSpec
    environment: Environment
    fit_length: bool = False

    @property
    def responses(self) -> int:
        """Responses that one policy has to give."""
        return len(self.problems) * (self.spec.samples + self.spec.greedy)


def description(task: Task, subject: Subject, engine: Mapping[str, str]) -> dict[str, Any]:
    """Every setting of an evaluation as plain values: what a result file says about itself, apart from the scores."""
    spec, problems = task.spec, task.problems
    model = {key: value for key, value in asdict(subject).items() if key != "context_tokens"}
    return {
        "spec": {
            **{key: list(value) if isinstance(value, tuple) else value for key, value in asdict(spec).items()},
            "stop": list(spec.stop),
        },
        "model": model,
        "problems": {"source": problems.source, "count": len(problems), "content_hash": problems.content_hash},
        "engine": dict(engine),
        "versions": library_versions(),
    }


def fingerprint(description: Mapping[str, Any]) -> str:
    """Eight hex digits that tell one description from another; where a file lay is no part of it."""
    compared = {
        "spec": {key: value for key, value in description["spec"].items() if key != "pass_k"},
        "model": {key: description["model"][key] for key in SUBJECT_KEYS},
        "problems": description["problems"]["content_hash"],
        "engine": description["engine"],
        "versions": description["versions"],
    }
    return hashlib.sha256(strict_json(compared).encode()).hexdigest()[:8]


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys under which two descriptions differ, with both values."""
    found = []
    for key in sorted({*first, *second}):
        one, other = first.get(key), second.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            found += differences(one, other, f"{prefix}{key}.")
        elif one != other:
            found.append(f"{prefix}{key} {one!r} → {other!r}")
    return found
