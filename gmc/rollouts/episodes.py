"""Playing episodes: sample, let the environment answer, sample on, until each is over.

Tokens in, tokens out: what was sampled stays as it was, and what the environment writes is put behind it as ids with mask
False. All episodes of a call take their turns together. The result depends on the policy, the prompts, the seeds and the
environment alone.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gmc.config.sampling import Sampling
from gmc.engines.base import Completion, Responder
from gmc.environments.base import ASSISTANT, Environment, Episode, Turn
from gmc.environments.limits import OddAnswerError, called, declared_stops, require_episode, require_reply, require_worth
from gmc.rewards.base import Message, Reward, Sample, Score
from gmc.rollouts.asked import Asked, hidden_ids, response_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class Play:
    """One episode while it is played.

    token_ids, logprobs, mask: of everything after the prompt; log-probs are 0 at tokens that the environment wrote. texts: what
    each side said, in turn, the model first. cut: whether the last turn reached a limit.
    """

    asked: Asked
    seed: int
    sample: int
    episode: Episode
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    cut: bool = False

    def add(self, completion: Completion, text: str) -> None:
        """A turn of the model."""
        self.token_ids += completion.token_ids
        self.logprobs += completion.logprobs
        self.mask += [True] * len(completion.token_ids)
        self.texts.append(text)
        self.episode.turns.append(Turn(ASSISTANT, text))
        self.cut = completion.finish_reason == "length"

    def answer(self, token_ids: Sequence[int], text: str, turn: Turn) -> None:
        """A turn of the environment. text: what its ids say."""
        self.token_ids += token_ids
        self.logprobs += [0.0] * len(token_ids)
        self.mask += [False] * len(token_ids)
        self.texts.append(text)
        self.episode.turns.append(turn)

    @property
    def context(self) -> list[int]:
        """What the model reads before its next turn."""
        return [*self.asked.token_ids, *self.token_ids]

    @property
    def completion(self) -> Completion:
        """Everything after the prompt."""
        return Completion(self.token_ids, self.logprobs, "length" if self.cut else "stop")

    def to_score(self) -> Sample:
        """The model's last turn, as a reward sees it: token ids are all that it sampled so far."""
        several = len(self.episode.turns) > 1
        turns: list[Message] = [{"role": turn.role, "content": turn.text} for turn in self.episode.turns]
        return Sample(
            problem=self.asked.problem,
            prompt=self.asked.prompt,
            text=self.episode.turns[-1].text,
            token_ids=[token for token, own in zip(self.token_ids, self.mask, strict=True) if own],
            truncated=self.cut,
            messages=self.asked.messages,
            turns=turns if several else (),
        )


def one_turn(asked: Asked, completion: Completion, text: str) -> Play:
    """An episode that was over with the model's first turn."""
    play = Play(asked, 0, 0, Episode(asked.problem, asked.problem.question))
    play.add(completion, text)
    return play


@dataclass(frozen=True)
class Player:
    """What plays the episodes of one call of `respond`. sampling: its `max_tokens` are those of all turns of one response."""

    engine: Responder
    tokenizer: "PreTrainedTokenizerBase"
    environment: Environment
    reward: Reward
    sampling: Sampling

    def play(
        self, asked_P: Sequence[Asked], group_size: int, seeds: Sequence[int], progress: Callable[[int], None]
    ) -> list[list[Play]]:
        """`group_size` finished episodes of each problem. progress: called with the number of newly finished ones."""
        environment, sampling = self.environment, self._turn_sampling(self.sampling.max_tokens)
        groups = self.engine.generate(
            [asked.token_ids for asked in asked_P],
            group_size=group_size,
            sampling=sampling,
            seeds=seeds,
            progress=None if environment.replies else progress,
        )
        plays = [
            [Play(asked, seed, sample, self._start(asked, seed, sample)) for sample in range(group_size)]
            for asked, seed in zip(asked_P, seeds, strict=True)
        ]
        running = [play for group in plays for play in group]
        if len({id(play.episode) for play in running}) < len(running):
            with called(environment, asked_P[0].problem.problem_id, "start"):
                raise OddAnswerError("gave one episode twice; make a new one for every call")
        completions = [completion for group in groups for completion in group]
        while True:
            self._add(running, completions)
            limits = [self._answer(play) for play in running]
            ended = limits.count(0)
            running, limits = [play for play, limit in zip(running, limits, strict=True) if limit], [*filter(None, limits)]
            if environment.replies and ended:
                progress(ended)
            if not running:
                return plays
            completions = self.engine.resume(
                [play.context for play in running],
                limits=limits,
                sampling=sampling,
                seeds=[turn_seed(play.seed, play.sample, play.episode.model_turns) for play in running],
            )

    def _turn_sampling(self, max_tokens: int) -> Sampling:
        return replace(self.sampling, max_tokens=max_tokens, stop=(*self.sampling.stop, *declared_stops(self.environment)))

    def _start(self, asked: Asked, seed: int, sample: int) -> Episode:
        with called(self.environment, asked.problem.problem_id, "start"):
            episode = require_episode(self.environment.start(asked.problem))
        episode.seed = turn_seed(seed, sample, 0)
        return episode

    def _add(self, plays: Sequence[Play], completions: Sequence[Completion]) -> None:
        hidden = hidden_ids(self.tokenizer)
        for play, completion in zip(plays, completions, strict=True):
            play.add(completion, response_text(self.tokenizer, completion.token_ids, hidden))
        if self.environment.scores_turns:
            scores = self.reward.score([play.to_score() for play in plays])
            for play, score in zip(plays, scores, strict=True):
                play.episode.scores.append(score)

    def _answer(self, play: Play) -> int:
        """Let the environment answer. Returns how many tokens the model may sample then: 0 when the episode is over."""
        if play.cut:
            return 0
        environment, turn = self.environment, len(play.texts)
        with called(environment, play.asked.problem.problem_id, f"reply to turn {turn}"):
            reply = require_reply(environment.reply(play.episode, play.episode.turns[-1].text))
        if reply is None:
            return 0
        template = play.asked.template
        assert template is not None  # whoever asks without one asks for no environment that replies
        ids = template.reply_ids(reply, play.token_ids, self.tokenizer, role=environment.role, inline=environment.inline)
        room = self.sampling.max_tokens - sum(play.mask)
        if self.engine.context_tokens is not None:
            room = min(room, self.engine.context_tokens - len(play.context) - len(ids))
        if room < 1:
            play.cut = True
            return 0
        play.answer(ids, str(self.tokenizer.decode(ids)), Turn(environment.role, reply))
        return room

    def scores(self, plays: Sequence[Play]) -> list[Score]:
        """What finished episodes are worth."""
        if self.environment.scores_turns:
            scores: Sequence[Score] = [play.episode.scores[-1] for play in plays]
        else:
            scores = self.reward.score([play.to_score() for play in plays])
        worth = []
        for play, score in zip(plays, scores, strict=True):
            with called(self.environment, play.asked.problem.problem_id, "worth"):
                own = require_worth(self.environment.worth(play.episode, score))
            # As a shard stores it, so that a resumed run trains on the same number. What the rewards gave stays beside it.
            own_reward = float(np.float32(own.reward))
            worth.append(own if own is score else replace(own, reward=own_reward, parts={**score.parts, **own.parts}))
        return worth


def turn_seed(seed: int, sample: int, turn: int) -> int:
    """Seed of one turn of one sample, from its prompt's seed; 56 bits, so every engine takes it."""
    digest = hashlib.blake2b(f"turns/{seed}/{sample}/{turn}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
