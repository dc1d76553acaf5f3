"""Making one launch batch: problems → sampled groups → grades → behavior log-probs → rows.

`gmc rollout`, `gmc train` and live followers all make their rollouts here, so a batch depends only on the seed, its number
and the policy, never on who made it.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gmc import __version__
from gmc.config.settings import Settings
from gmc.engines.base import Completion, Engine
from gmc.errors import GmcError
from gmc.grading import Grader
from gmc.models import LanguageModel, tokenizer_hash, weights_hash
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.templates import Template
from gmc.shards.rollout import Rollout, ShardMetadata
from gmc.training.scoring import Scorer


def problem_indices(batch: int, prompts: int, total: int, seed: int) -> list[int]:
    """Which problems launch batch `batch` asks: epochs of independently shuffled order, cut into batches of `prompts`.

    A pure function of its arguments (indices into a set of `total` problems), so nothing about data order needs saving.
    """
    positions = range(batch * prompts, (batch + 1) * prompts)
    return [_epoch_order(position // total, total, seed)[position % total] for position in positions]


@lru_cache(maxsize=4)
def _epoch_order(epoch: int, total: int, seed: int) -> list[int]:
    order = list(range(total))
    random.Random(f"problems/{seed}/{epoch}").shuffle(order)
    return order


def sampling_seed(seed: int, batch: int, group: int) -> int:
    """Seed of one group's samples, from (run seed, batch, group); 56 bits, so every engine takes it."""
    digest = hashlib.blake2b(f"samples/{seed}/{batch}/{group}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


@dataclass
class RolloutMaker:
    """Everything needed to make batches with one policy held by `engine` (and by `scorer`, for trainer log-probs)."""

    run_id: str
    settings: Settings
    model: LanguageModel
    problem_set: ProblemSet
    template: Template
    engine: Engine
    grader: Grader
    scorer: Scorer | None
    _handed_over: int | None = field(default=None, init=False)

    def make(self, batch: int, version: int, progress: Callable[[int], None] | None = None) -> list[Rollout]:
        """The P·G rollouts of launch batch `batch`, sampled by policy `version`, ordered by group then sample.

        `progress` is called with the number of newly finished responses. Raises `GmcError` when the checking processes of a
        whole batch crash, and whatever the engine raises.
        """
        rollout, seed = self.settings.rollout, self.settings.seed
        if not self.engine.shares_weights and self._handed_over != version:
            self.engine.load_weights(self.model.weights())
            self._handed_over = version
        indices = problem_indices(batch, rollout.prompts, len(self.problem_set), seed)
        problems = [self.problem_set.problems[index] for index in indices]
        texts_P = [self.template.render(problem.question, self.model.tokenizer) for problem in problems]
        prompts_P = [self.template.encode(text, self.model.tokenizer) for text in texts_P]
        groups = self.engine.generate(
            prompts_P,
            group_size=rollout.group_size,
            sampling=rollout.sampling(self.template.stop),
            seeds=[sampling_seed(seed, batch, group) for group in range(len(problems))],
            progress=progress,
        )
        rows = self._graded(batch, version, problems, texts_P, prompts_P, groups)
        self._score(rows, prompts_P, groups)
        return rows

    def metadata(self) -> ShardMetadata:
        """What a shard of this maker's current policy says about itself."""
        rollout = self.settings.rollout
        kinds = ("engine",) if self.scorer is None else ("engine", "trainer")
        sampling = rollout.sampling(self.template.stop)
        return ShardMetadata(
            run_id=self.run_id,
            model_id=self.model.source,
            weights_hash=weights_hash(self.model.weights()),
            tokenizer_hash=tokenizer_hash(self.model.tokenizer),
            vocabulary_size=self.model.vocabulary_size,
            engine=self.engine.name,
            engine_version=self.engine.version,
            sampling={name: str(value) for name, value in vars(sampling).items()},
            template_id=self.template.template_id,
            logprob_kinds=kinds,
            seed=self.settings.seed,
            group_size=rollout.group_size,
            gmc_version=__version__,
        )

    def _graded(
        self,
        batch: int,
        version: int,
        problems: Sequence[Problem],
        texts_P: Sequence[str],
        prompts_P: Sequence[list[int]],
        groups: Sequence[Sequence[Completion]],
    ) -> list[Rollout]:
        responses = [
            str(self.model.tokenizer.decode(completion.token_ids, skip_special_tokens=True))
            for group in groups
            for completion in group
        ]
        golds = [problem.answer for problem, group in zip(problems, groups, strict=True) for _ in group]
        truncated = [completion.finish_reason == "length" for group in groups for completion in group]
        verdicts = self.grader.grade_many(list(zip(golds, responses, strict=True)), truncated=truncated)
        if verdicts and all(verdict.status == "crash" for verdict in verdicts):
            raise GmcError(f"batch {batch}: every answer check crashed; see `gmc grade` on one of its answers")
        rows = []
        for index, verdict in enumerate(verdicts):
            group, sample = divmod(index, len(groups[0]))
            completion = groups[group][sample]
            rows.append(
                Rollout(
                    run_id=self.run_id,
                    problem_id=problems[group].problem_id,
                    batch=batch,
                    group=group,
                    sample=sample,
                    policy_version=version,
                    prompt_token_ids=prompts_P[group],
                    response_token_ids=completion.token_ids,
                    finish_reason=completion.finish_reason,
                    reward=1.0 if verdict.correct else 0.0,
                    grade=verdict.status,
                    answer=problems[group].answer,
                    prediction=verdict.prediction,
                    prompt=texts_P[group],
                    response=responses[index],
                    engine_logprobs=completion.logprobs,
                )
            )
        return rows

    def _score(self, rows: Sequence[Rollout], prompts_P: Sequence[list[int]], groups: Sequence[Sequence[Completion]]) -> None:
        if self.scorer is None:
            return
        responses_PG = [[completion.token_ids for completion in group] for group in groups]
        scores = self.scorer.score(prompts_P, responses_PG, entropies=self.settings.rollout.entropies)
        for index, row in enumerate(rows):
            length = len(row.response_token_ids)
            row.trainer_logprobs = scores.logp_BT[index, :length].tolist()
            if scores.entropies_BT is not None:
                row.trainer_entropies = scores.entropies_BT[index, :length].tolist()
