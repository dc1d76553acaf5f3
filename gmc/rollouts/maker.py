"""Making one launch batch: problems → sampled groups → rewards → behavior log-probs → rows.

`gmc rollout`, `gmc train` and live followers all make their rollouts here, so a batch depends only on the seed, its number
and the policy, never on who made it. Up to rounding, that is, for a follower of version 0, which samples single batches.
"""

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from gmc import __version__
from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.engines.base import Completion, Engine, Responder
from gmc.environments.base import Environment
from gmc.environments.limits import close_environment
from gmc.errors import GmcError
from gmc.models import LanguageModel, policy_hash, tokenizer_hash
from gmc.parameters.base import Parameters
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.templates import Template
from gmc.rewards.base import Score, TrainerState
from gmc.rewards.combined import CombinedReward
from gmc.rollouts.asked import Asked
from gmc.rollouts.resampling import Made, account_of, further_problems, is_equal
from gmc.rollouts.respond import Response, respond
from gmc.rollouts.together import Together, WithNeighbors
from gmc.scoring.scorer import Scorer
from gmc.store.shards.groups import expanded, sampled_length, token_ids
from gmc.store.shards.rollout import Rollout, SetAside, ShardMetadata


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
    """Everything needed to make batches with one policy held by `engine` (and by `scorer`, for trainer log-probs).

    parameters: who holds the model's; its ranks make a batch together, each its share of the groups, and all get all rows.
    initial_hash: of the weights of version 0, "" where only the model tells.
    """

    run_id: str
    settings: RunSettings
    model: LanguageModel
    problem_set: ProblemSet
    template: Template
    engine: Engine
    reward: CombinedReward
    environment: Environment
    scorer: Scorer | None
    parameters: Parameters
    initial_hash: str = ""
    _handed_over: int | None = field(default=None, init=False)

    def close(self) -> None:
        """End what the environment and the reward have started."""
        close_environment(self.environment)
        self.reward.close()

    def make(self, batch: int, version: int, progress: Callable[[int], None] | None = None) -> Made:
        """The P·G rollouts of launch batch `batch`, sampled by policy `version`, ordered by group then sample.

        Groups with equal rewards give their places to further prompts, as many as `rollout.resample_equal` allows. `progress`
        is called with the number of newly finished responses of the batch's own prompts. Raises `GmcError` when the checking
        processes of a whole batch crash, and whatever the engine and the reward raise.
        """
        rollout, total = self.settings.rollout, len(self.problem_set)
        self.reward.begin(TrainerState(global_step=version, max_steps=self.settings.train.updates))
        own = problem_indices(batch, rollout.prompts, total, self.settings.seed)
        with self.parameters.whole():
            self._hand_over(version)
            groups_PG = self._sample(self._engine_for(batch, version), batch, version, dict(enumerate(own)), progress)
            if all(row.status == "crash" for group in groups_PG for row in group):
                raise GmcError(f"batch {batch}: every answer check crashed; see `gmc grade` on one of its answers")
            further = further_problems(batch, own, rollout.resample_equal, total, self.settings.seed)
            set_aside = self._replace_equal(batch, version, groups_PG, further)
        rows = [row for group in groups_PG for row in group]
        self._score(rows)
        return Made(rows, set_aside)

    def begin(self, batch: int, version: int, asked_P: Sequence[Asked]) -> Callable[[], list[list[Completion]]]:
        """Have the engine begin with the prompts of a batch, in one process; as `Engine.begin`."""
        self._hand_over(version)
        return self.engine.begin(
            [asked.token_ids for asked in asked_P],
            group_size=self.settings.rollout.group_size,
            sampling=self.settings.rollout.sampling(self.template.stop),
            seeds=[sampling_seed(self.settings.seed, batch, group) for group in range(len(asked_P))],
        )

    def _replace_equal(
        self, batch: int, version: int, groups_PG: list[list[Rollout]], further: Sequence[int]
    ) -> tuple[SetAside, ...]:
        """Ask further prompts, as many at once as places are wanted, and put the groups that differ in these places.

        Whatever comes of it, a further prompt sets one equal group aside: the one that stood there, or its own.
        """
        set_aside: list[SetAside] = []
        number = len(groups_PG)
        while further and (places := [place for place, group in enumerate(groups_PG) if is_equal(group)]):
            now, further = further[: len(places)], further[len(places) :]
            fresh = self._sample(self.engine, batch, version, dict(enumerate(now, start=number)), None)
            number += len(now)
            for place, group in zip(places, fresh, strict=False):
                set_aside.append(account_of(group if is_equal(group) else groups_PG[place]))
                if not is_equal(group):
                    groups_PG[place] = [replace(row, group=place) for row in group]
        return tuple(set_aside)

    def _sample(
        self,
        engine: Responder,
        batch: int,
        version: int,
        problems: Mapping[int, int],
        progress: Callable[[int], None] | None,
    ) -> list[list[Rollout]]:
        """Rewarded groups, not scored yet, in order of their numbers. problems: the index of each group's, by its number."""
        rollout, seed = self.settings.rollout, self.settings.seed
        prompts = self._share(problems)
        groups = respond(
            engine,
            self.model.tokenizer,
            self.reward,
            list(prompts.values()),
            group_size=rollout.group_size,
            sampling=rollout.sampling(self.template.stop),
            seeds=[sampling_seed(seed, batch, group) for group in prompts],
            progress=progress,
            environment=self.environment,
        )
        mine = [
            self._row(batch, version, group, asked, sample, response)
            for (group, asked), responses in zip(prompts.items(), groups, strict=True)
            for sample, response in enumerate(responses)
        ]
        gathered = self.parameters.ranks.collect(mine)
        rows = sorted((row for rows in gathered for row in rows), key=lambda row: (row.group, row.sample))
        if progress and len(rows) > len(mine):
            progress(len(rows) - len(mine))
        size = rollout.group_size
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def _share(self, problems: Mapping[int, int]) -> dict[int, Asked]:
        """This rank's prompts by the number of their group. problems: as for `_sample`."""
        numbers = list(problems)
        return {
            numbers[place]: self._asked(self.problem_set.problems[problems[numbers[place]]])
            for place in self.parameters.ranks.share([1] * len(numbers))
        }

    def _engine_for(self, batch: int, version: int) -> Responder:
        """What samples a batch's own prompts: of the initial policy several batches at once."""
        if version or self._together.size == 1:
            return self.engine

        def asking(neighbor: int) -> tuple[list[list[int]], list[int]]:
            indices = problem_indices(neighbor, self.settings.rollout.prompts, len(self.problem_set), self.settings.seed)
            asked = self._share(dict(enumerate(indices)))
            seeds = [sampling_seed(self.settings.seed, neighbor, group) for group in asked]
            return [each.token_ids for each in asked.values()], seeds

        return WithNeighbors(self.engine, self._together, batch, asking)

    @cached_property
    def _together(self) -> Together:
        """Single batches for followers, who claim them one by one, and for episodes of several turns."""
        rollout = self.settings.rollout
        single = delay_class(self.settings.delay).live or self.environment.replies
        return Together(1 if single else self.engine.batches_at_once(rollout.prompts * rollout.group_size))

    def _asked(self, problem: Problem) -> Asked:
        return Asked.of(problem, self.template, self.model.tokenizer, self.environment)

    def _hand_over(self, version: int) -> None:
        """Give an engine with weights of its own those of the policy, once a version."""
        if not self.engine.shares_weights and self._handed_over != version:
            self.engine.load_weights(self.model.weights())
            self._handed_over = version

    def metadata(self, version: int, *, published: bool = False) -> ShardMetadata:
        """What a shard of this maker's current policy, `version`, says about itself.

        Only the initial policy and a published one are named by the hash of their weights: hashing takes about a second a
        gigabyte, and any other one is known by its run and version alone.
        """
        rollout = self.settings.rollout
        kinds = ("engine",) if self.scorer is None else ("engine", "trainer")
        sampling = rollout.sampling(self.template.stop)
        return ShardMetadata(
            run_id=self.run_id,
            model_id=self.model.source,
            weights_hash=self._weights_hash(version, published),
            tokenizer_hash=self._tokenizer_hash,
            vocabulary_size=self.model.vocabulary_size,
            engine=self.engine.name,
            engine_version=self.engine.version,
            sampling={name: str(value) for name, value in vars(sampling).items()},
            template_id=self.template.template_id,
            rewards=tuple(self.settings.reward.parts),
            reward_parts=tuple(self.reward.labels),
            logprob_kinds=kinds,
            seed=self.settings.seed,
            group_size=rollout.group_size,
            gmc_version=__version__,
            resample_equal=rollout.resample_equal,
            environment=rollout.environment,
        )

    def _weights_hash(self, version: int, published: bool) -> str:
        if version == 0 and self.initial_hash:
            return self.initial_hash
        return policy_hash(self.model) if version == 0 or published else ""

    @cached_property
    def _tokenizer_hash(self) -> str:
        return tokenizer_hash(self.model.tokenizer)

    def asked(self, batch: int) -> list[Asked]:
        """The P prompts of a launch batch."""
        problems = self.problem_set.problems
        indices = problem_indices(batch, self.settings.rollout.prompts, len(problems), self.settings.seed)
        return [self._asked(problems[index]) for index in indices]

    def empty_row(self, batch: int, version: int, group: int, asked: Asked, sample: int) -> Rollout:
        """A response that version `version` is about to begin: nothing is sampled, scored or rewarded yet."""
        nothing = Score(0.0, "", parts=dict.fromkeys(self.reward.labels, 0.0))
        row = self._row(batch, version, group, asked, sample, Response(Completion([], [], ""), "", nothing))
        row.token_versions, row.reward_parts, row.launched_at, row.ready_at = [], [], math.nan, math.nan
        if self.scorer is not None:
            row.trainer_logprobs = []
            row.trainer_entropies = [] if self.settings.rollout.entropies else None
        return row

    def _row(self, batch: int, version: int, group: int, asked: Asked, sample: int, response: Response) -> Rollout:
        return Rollout(
            run_id=self.run_id,
            problem_id=asked.problem.problem_id,
            batch=batch,
            group=group,
            sample=sample,
            policy_version=version,
            prompt_token_ids=asked.token_ids,
            response_token_ids=response.completion.token_ids,
            finish_reason=response.completion.finish_reason,
            reward=response.reward,
            status=response.score.status,
            answer=asked.problem.answer,
            prediction=response.score.prediction,
            prompt=asked.prompt,
            response=response.text,
            engine_logprobs=response.completion.logprobs,
            reward_parts=[response.score.parts[label] for label in self.reward.labels],
            note=response.score.note,
            response_mask=response.mask,
            turns=response.turns,
        )

    def _score(self, rows: Sequence[Rollout]) -> None:
        if self.scorer is None:
            return
        size = self.settings.rollout.group_size
        groups = [rows[start : start + size] for start in range(0, len(rows), size)]
        scores = self.scorer.score(*token_ids(groups), entropies=self.settings.rollout.entropies)
        for index, row in enumerate(rows):
            length = sampled_length(row)
            row.trainer_logprobs = expanded(row, scores.logp_BT[index, :length].tolist())
            if scores.entropies_BT is not None:
                row.trainer_entropies = expanded(row, scores.entropies_BT[index, :length].tolist())
