"""Batches in flight: sampled on by whichever version stands, scored under it before it goes, rewarded once a group is whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gmc.engines.base import Completion, Partial
from gmc.errors import GmcError
from gmc.rewards.base import TrainerState
from gmc.rollouts.asked import Asked
from gmc.rollouts.episodes import Play
from gmc.rollouts.maker import RolloutMaker, sampling_seed
from gmc.rollouts.respond import read_responses, reward_responses
from gmc.store.shards.groups import token_ids
from gmc.store.shards.rollout import Rollout

UNFINISHED = ""
"""The finish reason of a response that goes on."""


@dataclass
class FlyingBatch:
    """A launch batch on its way. rows_PG: its P·G rollouts, each with what was sampled so far; asked_P: their prompts.

    rewarded: the groups that are whole.
    """

    batch: int
    version: int
    asked_P: list[Asked]
    rows_PG: list[list[Rollout]]
    rewarded: set[int] = field(default_factory=set)

    @property
    def rows(self) -> list[Rollout]:
        """By group, then sample."""
        return [row for group in self.rows_PG for row in group]

    @property
    def is_whole(self) -> bool:
        """Whether every group is finished and rewarded."""
        return len(self.rewarded) == len(self.rows_PG)

    def finished(self) -> list[int]:
        """The groups whose responses are all finished."""
        return [place for place, group in enumerate(self.rows_PG) if all(row.finish_reason != UNFINISHED for row in group)]


def launch(maker: RolloutMaker, batch: int, version: int) -> FlyingBatch:
    """A batch of which nothing is sampled yet."""
    asked_P = maker.asked(batch)
    rows_PG = [
        [maker.empty_row(batch, version, group, asked, sample) for sample in range(maker.settings.rollout.group_size)]
        for group, asked in enumerate(asked_P)
    ]
    return FlyingBatch(batch, version, asked_P, rows_PG)


def partials_of(maker: RolloutMaker, flying: FlyingBatch) -> list[Partial]:
    """The responses of a batch as an engine goes on with them; it shares the rows' lists."""
    seed = maker.settings.seed
    found = []
    for row in flying.rows:
        assert row.engine_logprobs is not None
        row_seed = sampling_seed(seed, flying.batch, row.group)
        partial = Partial(row.prompt_token_ids, row_seed, row.sample, row.response_token_ids, row.engine_logprobs)
        partial.finish_reason = row.finish_reason
        found.append(partial)
    return found


def record(flying: FlyingBatch, partials: Sequence[Partial], version: int) -> None:
    """Take over what the engine has sampled since, as tokens of `version`."""
    for row, partial in zip(flying.rows, partials, strict=True):
        assert row.token_versions is not None
        row.finish_reason = partial.finish_reason
        row.token_versions += [version] * (len(row.response_token_ids) - len(row.token_versions))


def extend(
    maker: RolloutMaker,
    batches: Sequence[FlyingBatch],
    limits: Sequence[int],
    version: int,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Sample on, until each response is finished or has its batch's limit of tokens, with the weights of `version`."""
    partials = [partials_of(maker, flying) for flying in batches]
    maker.engine.extend(
        [partial for of_batch in partials for partial in of_batch],
        [limit for of_batch, limit in zip(partials, limits, strict=True) for _ in of_batch],
        sampling=maker.settings.rollout.sampling(maker.template.stop),
        progress=progress,
    )
    for flying, of_batch in zip(batches, partials, strict=True):
        record(flying, of_batch, version)


def score(maker: RolloutMaker, batches: Sequence[FlyingBatch]) -> None:
    """Trainer log-probs and entropies of all tokens that have none, under the weights of now, which sampled them."""
    if maker.scorer is None:
        return
    groups = [group for flying in batches for group in flying.rows_PG if any(_unscored(row) for row in group)]
    if not groups:
        return
    scores = maker.scorer.score(*token_ids(groups), entropies=maker.settings.rollout.entropies)
    for index, row in enumerate(row for group in groups for row in group):
        assert row.trainer_logprobs is not None
        first, end = len(row.trainer_logprobs), len(row.response_token_ids)
        row.trainer_logprobs += scores.logp_BT[index, first:end].tolist()
        if scores.entropies_BT is not None:
            assert row.trainer_entropies is not None
            row.trainer_entropies += scores.entropies_BT[index, first:end].tolist()


def _unscored(row: Rollout) -> bool:
    assert row.trainer_logprobs is not None
    return len(row.trainer_logprobs) < len(row.response_token_ids)


def read(maker: RolloutMaker, flying: FlyingBatch) -> dict[int, list[Play]]:
    """The finished groups that have no reward yet, decoded, by their place."""
    places = [place for place in flying.finished() if place not in flying.rewarded]
    groups = [[_completion(row) for row in flying.rows_PG[place]] for place in places]
    plays = read_responses(maker.model.tokenizer, [flying.asked_P[place] for place in places], groups)
    return dict(zip(places, plays, strict=True))


def reward(maker: RolloutMaker, flying: FlyingBatch, version: int, plays: Mapping[int, list[Play]] | None = None) -> list[int]:
    """Reward the finished groups that have no reward yet; returns them. plays: what `read` gave for them, None to read them
    here. Raises `GmcError` when every answer check crashed."""
    plays = read(maker, flying) if plays is None else plays
    if not plays:
        return []
    maker.reward.begin(TrainerState(global_step=version, max_steps=maker.settings.train.updates))
    places = list(plays)
    for place, responses in zip(places, reward_responses(maker.reward, list(plays.values())), strict=True):
        for row, response in zip(flying.rows_PG[place], responses, strict=True):
            row.reward = float(np.float32(response.reward))  # as a shard gives it back
            row.status, row.prediction, row.note = response.score.status, response.score.prediction, response.score.note
            row.reward_parts = [float(np.float32(response.score.parts[label])) for label in maker.reward.labels]
            row.response = response.text
    flying.rewarded.update(places)
    if flying.is_whole and all(row.status == "crash" for row in flying.rows):
        raise GmcError(f"batch {flying.batch}: every answer check crashed; see `gmc grade` on one of its answers")
    return places


def versions_of(row: Rollout) -> list[int] | None:
    """The versions of a row's tokens, None when they are all that of the first."""
    versions = row.token_versions
    return None if versions is None or all(version == row.policy_version for version in versions) else list(versions)


def _completion(row: Rollout) -> Completion:
    assert row.engine_logprobs is not None
    return Completion(row.response_token_ids, row.engine_logprobs, row.finish_reason)
