"""Sample, decode, reward: how every response of gmc comes to be, in training, evaluation and comparison alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmc.config.sampling import Sampling
from gmc.engines.base import Completion, Responder
from gmc.environments.base import Environment
from gmc.environments.single import Single
from gmc.rewards.base import Reward, Score
from gmc.rollouts.asked import Asked, hidden_ids, response_text
from gmc.rollouts.episodes import Play, Player, one_turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Response:
    """One rewarded response. text: its decoded tokens, for people; the ids in `completion` are the record.

    mask: which of its tokens the model sampled, None when it sampled all; turns: the texts of model and environment in turn,
    None when there is but one.
    """

    completion: Completion
    text: str
    score: Score
    mask: list[bool] | None = None
    turns: list[str] | None = None

    @property
    def reward(self) -> float:
        """What it is worth."""
        return self.score.reward


def respond(
    engine: Responder,
    tokenizer: "PreTrainedTokenizerBase",
    reward: Reward,
    asked_P: Sequence[Asked],
    *,
    group_size: int,
    sampling: Sampling,
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
    environment: Environment | None = None,
) -> list[list[Response]]:
    """`group_size` rewarded responses to each of P prompts, in order.

    seeds: one a prompt; progress: called with the number of newly finished responses; environment: what answers the model, None
    for nothing. A response cut off at the length limit is rewarded as such. Raises whatever the engine and the reward raise,
    and `GmcError` for an environment that fails.
    """
    player = Player(engine, tokenizer, environment or Single(), reward, sampling)
    groups = player.play(asked_P, group_size, seeds, progress or _silent)
    return _responses(groups, player.scores([play for group in groups for play in group]))


def read_responses(
    tokenizer: "PreTrainedTokenizerBase", asked_P: Sequence[Asked], groups: Sequence[Sequence[Completion]]
) -> list[list[Play]]:
    """What was sampled for each of P prompts in one turn, decoded."""
    hidden = hidden_ids(tokenizer)
    return [
        [one_turn(asked, completion, response_text(tokenizer, completion.token_ids, hidden)) for completion in group]
        for asked, group in zip(asked_P, groups, strict=True)
    ]


def reward_responses(reward: Reward, plays: Sequence[Sequence[Play]]) -> list[list[Response]]:
    """What `read_responses` gave, rewarded, all in one call of the reward."""
    return _responses(plays, reward.score([play.to_score() for group in plays for play in group]))


def _responses(groups: Sequence[Sequence[Play]], scores: Sequence[Score]) -> list[list[Response]]:
    left = iter(scores)
    return [
        [
            Response(
                completion=play.completion,
                text="".join(play.texts),
                score=next(left),
                mask=play.mask if len(play.texts) > 1 else None,
                turns=play.texts if len(play.texts) > 1 else None,
            )
            for play in group
        ]
        for group in groups
    ]


def _silent(done: int) -> None:
    """Nobody watches."""
