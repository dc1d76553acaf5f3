"""Running one evaluation: problems → prompts → responses → rewards → a result on disk, chunk by chunk."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.engines.base import Engine
from gmc.errors import GmcError, UsageError
from gmc.evaluation.results import PartialResult, Result
from gmc.evaluation.rewarded import Rewarded
from gmc.evaluation.samples import GREEDY, SAMPLED, Sample
from gmc.evaluation.scores import count_outcomes, problem_scores, score_estimates
from gmc.evaluation.spec import Task, description
from gmc.evaluation.subjects import Subject
from gmc.problems.templates import get_template
from gmc.rewards.combined import CombinedReward
from gmc.rollouts.asked import Asked
from gmc.rollouts.respond import Response, respond
from gmc.store.formats import stamp

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Progress = Callable[[float | None, int], None]
"""Called with (mean reward of the responses so far, None at first; newly finished responses).

The mean is of sampled responses, or of greedy ones where nothing is sampled.
"""


def evaluate(
    engine: Engine,
    tokenizer: "PreTrainedTokenizerBase",
    task: Task,
    *,
    subject: Subject,
    reward: CombinedReward,
    directory: Path,
    resume: bool = False,
    progress: Progress = lambda share, new: None,
) -> Result:
    """Evaluate the policy that `engine` holds and write the result into `directory`.

    Every chunk of problems is on disk before the next is generated; with `resume` the chunks of a killed evaluation of the same
    description are not made again, and the result's files are the same, byte for byte of the scores and value for value of the
    samples, as those of an uninterrupted one. Raises `UsageError` when a prompt leaves no room for a response, `GmcError` when
    every answer check of a chunk crashed, and whatever the reward raises.
    """
    rewarded = Rewarded.of(reward, task.environment)
    if task.spec.pass_k:
        rewarded.require_binary("--pass-k")
    asked = ask(tokenizer, task)
    task = with_room(task, asked, subject.context_tokens)
    described = description(task, subject, {"name": engine.name, "version": engine.version})
    record = functools.partial(_record, described, task, rewarded, asked[0].prompt)
    partial = PartialResult(directory, described, resume=resume)
    if (finished := partial.finished()) is not None:
        progress(_mean_reward(finished), len(finished))
        return partial.rescore(record(finished))
    chunks = in_chunks(task, asked)
    samples: list[Sample] = []
    for number, chunk in enumerate(chunks):
        report = functools.partial(progress, _mean_reward(samples))
        if partial.has(number):
            report(len(partial.read(number)))
        else:
            partial.write(number, answer(engine, tokenizer, reward, task, chunk, report))
        samples += partial.read(number)
    progress(_mean_reward(samples), 0)
    return partial.finish(len(chunks), record(samples))


def ask(tokenizer: "PreTrainedTokenizerBase", task: Task) -> list[Asked]:
    """Every problem's prompt. Raises `UsageError` when the tokenizer cannot express one."""
    template = get_template(task.spec.template_id)
    return [Asked.of(problem, template, tokenizer, task.environment) for problem in task.problems.problems]


def in_chunks(task: Task, asked: Sequence[Asked]) -> list[Sequence[Asked]]:
    """What is asked, in the pieces that are generated together."""
    size = task.spec.chunk_problems()
    return [asked[start : start + size] for start in range(0, len(asked), size)]


def with_room(task: Task, asked: Sequence[Asked], context_tokens: int | None) -> Task:
    """The task with a response length that the model's context has room for, and a note when that is shorter than asked.

    Raises `UsageError` when there is no room, or (without `task.fit_length`) less than asked for.
    """
    spec, longest = task.spec, max(asked, key=lambda each: len(each.token_ids))
    if context_tokens is None or (room := context_tokens - len(longest.token_ids)) >= spec.max_tokens:
        return task
    if room > 0 and task.fit_length:
        note = f"responses are limited to {room} tokens: the longest prompt leaves no more of the model's {context_tokens}"
        problems = task.problems.keep(task.problems.problems, note)
        return replace(task, spec=replace(spec, max_tokens=room), problems=problems)
    raise UsageError(
        f"{spec.benchmark}: problem {longest.problem.problem_id} has {len(longest.token_ids)} prompt tokens, which "
        f"leaves {max(room, 0)} of the model's {context_tokens} positions for --max-tokens {spec.max_tokens}; "
        + (f"use --max-tokens {room}" if room > 0 else "the context is too short for this prompt")
    )


def answer(
    engine: Engine,
    tokenizer: "PreTrainedTokenizerBase",
    reward: CombinedReward,
    task: Task,
    chunk: Sequence[Asked],
    progress: Callable[[int], None],
) -> list[Sample]:
    """Rewarded samples of a chunk, in problem order, each problem's n samples before its greedy one."""
    seeds = [_seed(task.spec.seed, task.spec.benchmark, asked.problem.problem_id) for asked in chunk]
    samples: list[list[Sample]] = [[] for _ in chunk]
    for decoding, count, sampling in task.spec.decodings():
        answered = respond(
            engine,
            tokenizer,
            reward,
            chunk,
            group_size=count,
            sampling=sampling,
            seeds=seeds,
            progress=progress,
            environment=task.environment,
        )
        for own, asked, responses in zip(samples, chunk, answered, strict=True):
            own += [_sample(asked, decoding, number, response, reward.labels) for number, response in enumerate(responses)]
    flat = [sample for own in samples for sample in own]
    if all(sample.status == "crash" for sample in flat):
        raise GmcError("every answer check of a chunk crashed, so its scores mean nothing; try `gmc grade` on one answer")
    return flat


def _sample(asked: Asked, decoding: str, number: int, response: Response, labels: Sequence[str]) -> Sample:
    problem, completion, score = asked.problem, response.completion, response.score
    return Sample(
        problem_id=problem.problem_id,
        kind=problem.kind,
        decoding=decoding,
        sample=number,
        question=problem.question,
        answer=problem.answer,
        prompt=asked.prompt,
        prompt_token_ids=asked.token_ids,
        response=response.text,
        response_token_ids=list(completion.token_ids),
        finish_reason=completion.finish_reason,
        prediction=score.prediction,
        reward=score.reward,
        reward_parts=[score.parts[label] for label in labels],
        status=score.status,
        note=score.note,
        response_mask=response.mask,
    )


def _record(described: dict[str, Any], task: Task, rewarded: Rewarded, example: str, samples: list[Sample]) -> dict[str, Any]:
    """The JSON of a finished evaluation."""
    scores = score_estimates(problem_scores(samples, task.spec.pass_k, rewarded), task.spec.seed)
    decodings = {decoding: [s for s in samples if s.decoding == decoding] for decoding in (SAMPLED, GREEDY)}
    known = task.benchmark.content_hash
    return {
        **stamp(),
        **described,
        "benchmark": task.benchmark.name,
        "rewarded": rewarded.record(),
        "scores": {name: asdict(value) for name, value in scores.items()},
        "outcomes": {decoding: asdict(count_outcomes(rows)) for decoding, rows in decodings.items() if rows},
        "interval": "95 %, bootstrap over problems (where all score the same: Clopper-Pearson for shares, none for others)",
        "problems": {
            **described["problems"],
            "expected_count": task.benchmark.count,
            "expected_content_hash": known,
            "content_hash_matches": None if known is None else task.problems.content_hash == known,
        },
        "prompt_example": example,
        "notes": list(task.problems.notes),
    }


def _mean_reward(samples: Sequence[Sample]) -> float | None:
    first = samples[0].decoding if samples else SAMPLED  # sampled responses stand before greedy ones
    rewards = [sample.reward for sample in samples if sample.decoding == first]
    return sum(rewards) / len(rewards) if rewards else None


def _seed(seed: int, benchmark: str, problem_id: str) -> int:
    """Seed of one problem's samples; 56 bits, so every engine takes it."""
    digest = hashlib.blake2b(f"eval/{seed}/{benchmark}/{problem_id}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
