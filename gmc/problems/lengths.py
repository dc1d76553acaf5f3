"""Problems whose prompts leave no room for a response."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gmc.errors import DataError, UsageError
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.templates import TEMPLATES, Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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

    def fits(question: str) -> bool:
        prompt = template.render(question, tokenizer)
        # No tokenizer makes two tokens of a byte, so most prompts need not be encoded to be known as short enough.
        return 2 * len(prompt.encode()) <= longest or len(template.encode(prompt, tokenizer, question)) <= longest

    kept = [problem for problem in problems.problems if fits(asking(problem))]
    dropped = len(problems) - len(kept)
    if not dropped:
        return problems
    if not kept:
        raise DataError(
            f"{problems.source}: no usable problem; all {dropped} prompts have more than {longest} tokens "
            f"(template {template.template_id}); {_cure(problems, tokenizer, longest)}"
        )
    note = f"{dropped} of {len(problems)} problems dropped: their prompts have more than {longest} tokens"
    return problems.keep(kept, note)


def _cure(problems: ProblemSet, tokenizer: "PreTrainedTokenizerBase", longest: int) -> str:
    """The templates under which a first problem would fit, or what is left to do."""
    shortest = min((problem.question for problem in problems.problems), key=len)
    fitting = []
    for template in TEMPLATES.values():
        if template.chat and not getattr(tokenizer, "chat_template", None):
            continue
        text = template.render(shortest, tokenizer)
        if len(template.encode(text, tokenizer, shortest)) <= longest:
            fitting.append(template.template_id)
    if fitting:
        return f"--set problems.template=NAME with one that fits: {', '.join(fitting)}"
    return "no template is short enough: give a smaller --max-tokens, or a model with a longer context"
