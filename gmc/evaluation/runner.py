"""Running one evaluation: problems → prompts → responses → verdicts → a result on disk, chunk by chunk."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.engines.base import Engine
from gmc.errors import GmcError, UsageError
from gmc.evaluation.results import PartialResult, Result, result_record
from gmc.evaluation.samples import GREEDY, SAMPLED, Sample
from gmc.evaluation.scores import count_outcomes, problem_scores, score_estimates
from gmc.evaluation.spec import EvalSpec, Subject, description
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.benchmarks import Benchmark
from gmc.problems.templates import Template, get_template
from gmc.rollouts.respond import Response, respond

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from gmc.grading import Grader

Progress = Callable[[float | None, int], None]
"""Called with (share correct of the responses graded so far, None at first; newly finished responses).

The share is of sampled responses, or of greedy ones where nothing is sampled.
"""


def evaluate(
    engine: Engine,
    tokenizer: "PreTrainedTokenizerBase",
    problems: ProblemSet,
    *,
    benchmark: Benchmark,
    spec: EvalSpec,
    subject: Subject,
    grader: "Grader",
    directory: Path,
    resume: bool = False,
    fit_length: bool = False,
    progress: Progress = lambda share, new: None,
) -> Result:
    """Evaluate the policy that `engine` holds and write the result into `directory`.

    fit_length: shorten `spec.max_tokens` to what the longest prompt leaves of the model's context (noted in the result).
    Every chunk of problems is on disk before the next is generated; with `resume` the chunks of a killed evaluation of the same
    description are not made again, and the result's files are the same, byte for byte of the scores and value for value of the
    samples, as those of an uninterrupted one. Raises `UsageError` when a prompt leaves no room for a response, `GmcError` when
    every answer check of a chunk crashed.
    """
    template = get_template(spec.template_id)
    prompts, prompts_ids = make_prompts(tokenizer, template, problems)
    spec, problems = with_room(spec, problems, prompts_ids, subject.context_tokens, fit=fit_length)
    described = description(
        spec, subject, problems, engine={"name": engine.name, "version": engine.version}, stop=template.stop
    )
    record = functools.partial(_record, described, benchmark, spec, problems, prompts[0])
    partial = PartialResult(directory, described, resume=resume)
    if (finished := partial.finished()) is not None:
        progress(_share_correct(finished), len(finished))
        return partial.rescore(record(finished))
    responder = _Responder(engine, tokenizer, template, spec, grader)
    size = spec.chunk_problems()
    starts = range(0, len(problems), size)
    samples: list[Sample] = []
    for chunk, start in enumerate(starts):
        report = functools.partial(progress, _share_correct(samples))
        if partial.has(chunk):
            report(len(partial.read(chunk)))
        else:
            chosen = slice(start, start + size)
            partial.write(chunk, responder.answer(problems.problems[chosen], prompts[chosen], prompts_ids[chosen], report))
        samples += partial.read(chunk)
    progress(_share_correct(samples), 0)
    return partial.finish(len(starts), record(samples))


class _Responder:
    """Answers a chunk of problems with one policy: the n samples of each, then its greedy response."""

    def __init__(
        self, engine: Engine, tokenizer: "PreTrainedTokenizerBase", template: Template, spec: EvalSpec, grader: "Grader"
    ) -> None:
        self._engine, self._tokenizer, self._template, self._spec, self._grader = engine, tokenizer, template, spec, grader

    def answer(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[str],
        prompts_ids: Sequence[list[int]],
        progress: Callable[[int], None],
    ) -> list[Sample]:
        """Graded samples of the chunk, in problem order, sampled ones first."""
        spec, stop = self._spec, self._template.stop
        seeds = [_seed(spec.seed, spec.benchmark, problem.problem_id) for problem in problems]
        groups: list[list[tuple[str, int, Response]]] = [[] for _ in problems]
        plans = []
        if spec.samples:
            plans.append((SAMPLED, spec.samples, spec.sampled(stop)))
        if spec.greedy:
            plans.append((GREEDY, 1, spec.greedily(stop)))
        for decoding, count, sampling in plans:
            answered = respond(
                self._engine,
                self._tokenizer,
                self._grader,
                prompts_ids,
                [problem.answer for problem in problems],
                group_size=count,
                sampling=sampling,
                seeds=seeds,
                progress=progress,
            )
            for group, responses in zip(groups, answered, strict=True):
                group += [(decoding, number, response) for number, response in enumerate(responses)]
        if all(response.verdict.status == "crash" for group in groups for _, _, response in group):
            raise GmcError("every answer check of a chunk crashed, so its scores mean nothing; try `gmc grade` on one answer")
        return [
            _sample(problem, prompt, ids, decoding, number, response)
            for problem, prompt, ids, group in zip(problems, prompts, prompts_ids, groups, strict=True)
            for decoding, number, response in group
        ]


def _sample(problem: Problem, prompt: str, ids: list[int], decoding: str, number: int, response: Response) -> Sample:
    completion, verdict = response.completion, response.verdict
    return Sample(
        problem_id=problem.problem_id,
        kind=problem.kind,
        decoding=decoding,
        sample=number,
        question=problem.question,
        answer=problem.answer,
        prompt=prompt,
        prompt_token_ids=ids,
        response=response.text,
        response_token_ids=list(completion.token_ids),
        finish_reason=completion.finish_reason,
        prediction=verdict.prediction,
        correct=verdict.correct,
        grade=verdict.status,
        tier=verdict.tier,
    )


def _record(
    described: dict[str, Any], benchmark: Benchmark, spec: EvalSpec, problems: ProblemSet, example: str, samples: list[Sample]
) -> dict[str, Any]:
    scored = problem_scores(samples, spec.pass_k)
    decodings = {decoding: [s for s in samples if s.decoding == decoding] for decoding in (SAMPLED, GREEDY)}
    known = benchmark.content_hash
    return result_record(
        described,
        scores=score_estimates(scored, spec.seed),
        outcomes={decoding: count_outcomes(rows) for decoding, rows in decodings.items() if rows},
        expected={
            "expected_count": benchmark.count,
            "expected_content_hash": known,
            "content_hash_matches": None if known is None else problems.content_hash == known,
        },
        prompt_example=example,
        notes=list(problems.notes),
    )


def _share_correct(samples: Sequence[Sample]) -> float | None:
    first = samples[0].decoding if samples else SAMPLED  # sampled responses stand before greedy ones
    right = [sample.correct for sample in samples if sample.decoding == first]
    return sum(right) / len(right) if right else None


def _seed(seed: int, benchmark: str, problem_id: str) -> int:
    """Seed of one problem's samples; 56 bits, so every engine takes it."""
    digest = hashlib.blake2b(f"eval/{seed}/{benchmark}/{problem_id}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def make_prompts(
    tokenizer: "PreTrainedTokenizerBase", template: Template, problems: ProblemSet
) -> tuple[list[str], list[list[int]]]:
    """(texts, token ids) of every problem's prompt. Raises `UsageError` when the tokenizer cannot express one."""
    prompts = [template.render(problem.question, tokenizer) for problem in problems.problems]
    return prompts, [template.encode(prompt, tokenizer) for prompt in prompts]


def with_room(
    spec: EvalSpec, problems: ProblemSet, prompts_ids: Sequence[list[int]], context_tokens: int | None, *, fit: bool
) -> tuple[EvalSpec, ProblemSet]:
    """The spec with a response length that the model's context has room for, and a note when that is shorter than asked.

    Raises `UsageError` when there is no room, or (without `fit`) less than asked for.
    """
    if context_tokens is None:
        return spec, problems
    lengths = [len(ids) for ids in prompts_ids]
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    room = context_tokens - lengths[longest]
    if room >= spec.max_tokens:
        return spec, problems
    if room > 0 and fit:
        note = f"responses are limited to {room} tokens: the longest prompt leaves no more of the model's {context_tokens}"
        return replace(spec, max_tokens=room), replace(problems, notes=(*problems.notes, note))
    raise UsageError(
        f"{spec.benchmark}: problem {problems.problems[longest].problem_id} has {lengths[longest]} prompt tokens, which "
        f"leaves {max(room, 0)} of the model's {context_tokens} positions for --max-tokens {spec.max_tokens}; "
        + (f"use --max-tokens {room}" if room > 0 else "the context is too short for this prompt")
    )
