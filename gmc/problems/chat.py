"""A tokenizer's own chat template, on a fixed date, with whatever it may fail at said in one line."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from gmc.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TODAY = datetime(2026, 1, 1)
"""What a chat template that asks for the date is told, always: a run must not ask another question every day."""


def render_chat(text: str, question: str, tokenizer: "PreTrainedTokenizerBase", *, today: datetime = TODAY) -> str:
    """The text, which holds the question, as a user's message, up to where the answer begins.

    Raises `UsageError` when the tokenizer has no chat template, when the template fails, and when what it writes does not
    hold the question.
    """
    if not tokenizer.chat_template:
        raise UsageError("this model's tokenizer has no chat template; use another template")
    conversation = [{"role": "user", "content": text}]
    try:
        rendered: Any = tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True, strftime_now=today.strftime
        )
    except Exception as error:  # a program that came with the model can fail in any way; its error is chained, in one line
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        raise UsageError(
            f"this model's chat template fails: {type(error).__name__}: {reason}; "
            "correct its chat_template, or use another template"
        ) from error
    if "".join(question.split()) not in "".join(str(rendered).split()):
        raise UsageError(
            "this model's chat template leaves the question out (it may want messages of another form); "
            "correct its chat_template, or use another template"
        )
    return str(rendered)


def writes_date(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the chat template writes the date, so that every day would have had its own prompt."""
    return render_chat("?", "?", tokenizer) != render_chat("?", "?", tokenizer, today=datetime(2031, 12, 24))
