"""Sample, decode, reward: how every response of gmc comes to be, in training, evaluation and comparison alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmc.config.sampling import Sampling
from gmc.engines.base import Completion, Engine
from gmc.grading.thinking import is_mark
from gmc.problems.base import Problem
from gmc.problems.templates import Template
from gmc.problems.tokens import control_tokens
from gmc.rewards.base import Reward, Sample, Score

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Asked:
    """A problem and its prompt: as text, as token ids, and as the messages that a chat template made it of."""

    problem: Problem
    prompt: str
    token_ids: list[int]
    messages: Sequence[Mapping[str, str]] = ()

    @classmethod
    def of(cls, problem: Problem, template: Template, tokenizer: "PreTrainedTokenizerBase") -> "Asked":
        """A problem put as the template puts it. Raises `UsageError` when the tokenizer cannot express it."""
        prompt = template.render(problem.question, tokenizer)
        return cls(problem, prompt, template.encode(prompt, tokenizer, problem.question), template.messages(problem.question))


@dataclass(frozen=True)
class Response:
    """One rewarded response. text: its decoded tokens, for people and rewards; the ids in `completion` are the record."""

    completion: Completion
    text: str
    score: Score

    @property
    def reward(self) -> float:
        """What it is worth."""
        return self.score.reward


def respond(
    engine: Engine,
    tokenizer: "PreTrainedTokenizerBase",
    reward: Reward,
    asked_P: Sequence[Asked],
    *,
    group_size: int,
    sampling: Sampling,
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> list[list[Response]]:
    """`group_size` rewarded responses to each of P prompts, in order.

    seeds: one a prompt; progress: called with the number of newly finished responses. A response cut off at the length limit is
    rewarded as such. Raises whatever the engine and the reward raise.
    """
    prompts_P = [asked.token_ids for asked in asked_P]
    groups = engine.generate(prompts_P, group_size=group_size, sampling=sampling, seeds=seeds, progress=progress)
    return reward_responses(tokenizer, reward, asked_P, groups)


def reward_responses(
    tokenizer: "PreTrainedTokenizerBase", reward: Reward, asked_P: Sequence[Asked], groups: Sequence[Sequence[Completion]]
) -> list[list[Response]]:
    """What was sampled for each of P prompts, decoded and rewarded, all in one call of the reward."""
    hidden = hidden_ids(tokenizer)
    texts = [[response_text(tokenizer, completion.token_ids, hidden) for completion in group] for group in groups]
    samples = [
        Sample(
            problem=asked.problem,
            prompt=asked.prompt,
            text=text,
            token_ids=completion.token_ids,
            truncated=completion.finish_reason == "length",
            messages=asked.messages,
        )
        for asked, group, group_texts in zip(asked_P, groups, texts, strict=True)
        for completion, text in zip(group, group_texts, strict=True)
    ]
    scores = iter(reward.score(samples))
    return [
        [Response(completion, text, next(scores)) for completion, text in zip(group, group_texts, strict=True)]
        for group, group_texts in zip(groups, texts, strict=True)
    ]


def hidden_ids(tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Special ids that are left out of a response's text: all but those that the grader must see, as those of thinking."""
    special = control_tokens(tokenizer)
    return frozenset(index for index, text in special.items() if not is_mark(text))


def response_text(tokenizer: "PreTrainedTokenizerBase", token_ids: Sequence[int], hidden: frozenset[int]) -> str:
    """A response as people and the grader read it: its tokens without the `hidden` ones."""
    return str(tokenizer.decode([index for index in token_ids if index not in hidden], skip_special_tokens=False))
