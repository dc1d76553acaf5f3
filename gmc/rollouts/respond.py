"""Sample, decode, judge: how every response of gmc comes to be, in training, evaluation and comparison alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmc.config.sampling import Sampling
from gmc.engines.base import Completion, Engine
from gmc.grading import Grader
from gmc.grading.grade import Verdict
from gmc.grading.thinking import is_mark
from gmc.problems.tokens import control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Response:
    """One judged response. text: its decoded tokens, for people and the grader; the ids in `completion` are the record."""

    completion: Completion
    text: str
    verdict: Verdict

    @property
    def reward(self) -> float:
        """1 for a correct answer, else 0."""
        return 1.0 if self.verdict.correct else 0.0


def respond(
    engine: Engine,
    tokenizer: "PreTrainedTokenizerBase",
    grader: Grader,
    prompts_P: Sequence[Sequence[int]],
    golds_P: Sequence[str],
    *,
    group_size: int,
    sampling: Sampling,
    seeds: Sequence[int],
    thinking_P: Sequence[bool],
    progress: Callable[[int], None] | None = None,
) -> list[list[Response]]:
    """`group_size` judged responses to each of P prompts, in order.

    prompts_P: token ids; golds_P: the right answers; seeds: one a prompt; thinking_P: which prompts end inside a thinking
    block; progress: called with the number of newly finished responses. A response cut off at the length limit is judged as
    such. Raises whatever the engine raises.
    """
    groups = engine.generate(prompts_P, group_size=group_size, sampling=sampling, seeds=seeds, progress=progress)
    hidden = hidden_ids(tokenizer)
    texts = [[response_text(tokenizer, completion.token_ids, hidden) for completion in group] for group in groups]
    verdicts = iter(
        grader.grade_many(
            [(gold, text) for gold, group in zip(golds_P, texts, strict=True) for text in group],
            truncated=[completion.finish_reason == "length" for group in groups for completion in group],
            thinking=[thinking for thinking, group in zip(thinking_P, groups, strict=True) for _ in group],
        )
    )
    return [
        [Response(completion, text, next(verdicts)) for completion, text in zip(group, group_texts, strict=True)]
        for group, group_texts in zip(groups, texts, strict=True)
    ]


def hidden_ids(tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Special ids that are left out of a response's text: all but those that the grader must see, as those of thinking."""
    special = control_tokens(tokenizer)
    return frozenset(index for index, text in special.items() if not is_mark(text))


def response_text(tokenizer: "PreTrainedTokenizerBase", token_ids: Sequence[int], hidden: frozenset[int]) -> str:
    """A response as people and the grader read it: its tokens without the `hidden` ones."""
    return str(tokenizer.decode([index for index in token_ids if index not in hidden], skip_special_tokens=False))
