"""Problems whose prompts leave no room for a response."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gmc.errors import DataError, UsageError
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.templates import TEMPLATES, Template
from gmc.registry import saying_so

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ATTEMPTS = 4
"""Pairs of prompts of which the shared text is counted by itself."""

EDGE_TOKENS = 16
"""So many tokens at the ends of a text may become fewer beside another text."""


def _question(problem: Problem) -> str:
    return problem.question


def drop_long_prompts(
    problems: ProblemSet,
    template: Template,
    tokenizer: "PreTrainedTokenizerBase",
    longest: int,
    asking: Callable[[Problem], str] = _question,
) -> ProblemSet:
    """The problems whose prompt has at most `longest` tokens, in order; a note counts the others. No prompt is ever cut.

    asking: what is really asked of a problem, where that is not its question alone.

    Raises `DataError` when none is left, `UsageError` when no prompt at all could fit.
    """
    if longest < 1:
        raise UsageError(
            f"rollout.max_tokens leaves {longest} tokens of the model's context for the prompt; give a smaller --max-tokens"
        )

    too_long = _TooLong(template, tokenizer, longest)

    def fits(question: str) -> bool:
        prompt = template.render(question, tokenizer)
        # No tokenizer makes two tokens of a byte, so most prompts need not be encoded to be known as short enough.
        if 2 * len(prompt.encode()) <= longest:
            return True
        if too_long.is_in(prompt):
            return False
        if len(template.encode(prompt, tokenizer, question)) <= longest:
            return True
        too_long.learn(prompt)
        return False

    with saying_so(f"counting the tokens of {len(problems)} prompts"):
        kept = [problem for problem in problems.problems if fits(asking(problem))]
    dropped = len(problems) - len(kept)
    if not dropped:
        return problems
    if not kept:
        raise DataError(
            f"{problems.source}: no usable problem; all {dropped} prompts have more than {longest} tokens "
            f"(template {template.template_id}); {_cure(problems, template, tokenizer, longest, asking)}"
        )
    note = f"{dropped} of {len(problems)} problems dropped: their prompts have more than {longest} tokens"
    return problems.keep(kept, note)


class _TooLong:
    """Texts with which prompts begin or end, and that are too long by themselves: what an environment adds to each question may
    be, and counting that again for every problem would take minutes."""

    def __init__(self, template: Template, tokenizer: "PreTrainedTokenizerBase", longest: int) -> None:
        self._template, self._tokenizer, self._longest = template, tokenizer, longest
        self._last, self._attempts = "", 0
        self._texts: list[str] = []

    def is_in(self, prompt: str) -> bool:
        """Whether the prompt is known as too long without being encoded."""
        return any(prompt.startswith(text) or prompt.endswith(text) for text in self._texts)

    def learn(self, prompt: str) -> None:
        """See whether what this prompt, which is too long, shares with the one before it is too long by itself."""
        before, self._last = self._last, prompt
        if not before or self._attempts == ATTEMPTS:
            return
        self._attempts += 1
        begins, ends = _shared(before, prompt), _shared(before[::-1], prompt[::-1])
        text = prompt[:begins] if begins >= ends else prompt[-ends:]
        if len(self._template.encode(text, self._tokenizer)) > self._longest + EDGE_TOKENS:
            self._texts.append(text)


def _shared(one: str, other: str) -> int:
    """With how many characters both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _cure(
    problems: ProblemSet,
    template: Template,
    tokenizer: "PreTrainedTokenizerBase",
    longest: int,
    asking: Callable[[Problem], str],
) -> str:
    """The templates under which a first problem would fit, or what is left to do."""

    def fits(template: Template, question: str) -> bool:
        return len(template.encode(template.render(question, tokenizer), tokenizer, question)) <= longest

    problem = min(problems.problems, key=lambda problem: len(problem.question))
    asked = asking(problem)
    if asked != problem.question and fits(template, problem.question):
        return (
            f"the environment makes {len(asked)} characters of a question of {len(problem.question)}: have it add less, or "
            "give a smaller --max-tokens, or a model with a longer context"
        )
    usable = [each for each in TEMPLATES.values() if not each.chat or getattr(tokenizer, "chat_template", None)]
    fitting = [each.template_id for each in usable if fits(each, asked)]
    if fitting:
        return f"--set problems.template=NAME with one that fits: {', '.join(fitting)}"
    return "no template is short enough: give a smaller --max-tokens, or a model with a longer context"
