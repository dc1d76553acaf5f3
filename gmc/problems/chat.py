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
    rendered = _rendered([{"role": "user", "content": text}], tokenizer, today)
    if "".join(question.split()) not in "".join(str(rendered).split()):
        raise UsageError(
            "this model's chat template leaves the question out (it may want messages of another form); "
            "correct its chat_template, or use another template"
        )
    return rendered


def render_reply(reply: str, role: str, tokenizer: "PreTrainedTokenizerBase") -> str:
    """What a chat template writes between the end of what a model said and the beginning of what it says next.

    reply: what it is told, in a turn of `role`. Raises `UsageError` as `render_chat`, and for a template that cannot be cut
    behind a turn of the model because it writes that turn in another way, or leaves the reply out.
    """
    said = "so-it-said"
    conversation = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}, {"role": role, "content": reply}]
    before, found, after = _rendered(conversation, tokenizer, TODAY).rpartition(said)
    if not found or said in before or "".join(reply.split()) not in "".join(after.split()):
        raise UsageError(
            f"this model's chat template does not write a turn of role {role} behind the model's; use an environment that "
            "answers inline, correct the chat_template, or use another template"
        )
    return after


def _rendered(conversation: list[dict[str, str]], tokenizer: "PreTrainedTokenizerBase", today: datetime) -> str:
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
    return str(rendered)


def writes_date(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the chat template writes the date, so that every day would have had its own prompt."""
    return render_chat("?", "?", tokenizer) != render_chat("?", "?", tokenizer, today=datetime(2031, 12, 24))
