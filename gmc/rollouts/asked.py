"""A problem as it is put to the model, and what the model said as people read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmc.environments.base import Environment
from gmc.environments.limits import called, require_episode
from gmc.grading.thinking import is_mark
from gmc.problems.base import Problem
from gmc.problems.templates import Template
from gmc.problems.tokens import control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Asked:
    """A problem and its prompt: as text, as token ids, and as the messages that a chat template made it of.

    template: what wrote the prompt, and writes what an environment answers; None where nothing answers.
    """

    problem: Problem
    prompt: str
    token_ids: list[int]
    messages: Sequence[Mapping[str, str]] = ()
    template: Template | None = None

    @classmethod
    def of(
        cls, problem: Problem, template: Template, tokenizer: "PreTrainedTokenizerBase", environment: Environment | None = None
    ) -> "Asked":
        """A problem put as the environment asks it and the template writes it; without an environment, its question.

        Raises `UsageError` when the tokenizer cannot express it, `GmcError` for an environment that fails.
        """
        question = problem.question if environment is None else first_question(environment, problem)
        prompt = template.render(question, tokenizer)
        ids = template.encode(prompt, tokenizer, question)
        return cls(problem, prompt, ids, template.messages(question), template)


def first_question(environment: Environment, problem: Problem) -> str:
    """What an environment has the template put to the model first. Raises `GmcError` for an environment that fails."""
    with called(environment, problem.problem_id, "start"):
        return require_episode(environment.start(problem)).question


def hidden_ids(tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Special ids that are left out of a response's text: all but those that the grader must see, as those of thinking."""
    special = control_tokens(tokenizer)
    return frozenset(index for index, text in special.items() if not is_mark(text))


def response_text(tokenizer: "PreTrainedTokenizerBase", token_ids: Sequence[int], hidden: frozenset[int]) -> str:
    """A response as people and the grader read it: its tokens without the `hidden` ones."""
    return str(tokenizer.decode([index for index in token_ids if index not in hidden], skip_special_tokens=False))
