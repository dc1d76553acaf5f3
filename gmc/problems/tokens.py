"""A prompt as token ids: what a tokenizer adds by itself, and what must stay plain characters.

Only the template (or the model's chat template) speaks in control tokens. The same characters inside a question are text.
"""

from typing import TYPE_CHECKING, Any

from gmc.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def plain_ids(prompt: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Ids of a prompt without control tokens of its own, after those that the tokenizer puts before a text.

    What it would append (an end token after which no answer comes) is left away. Raises `UsageError` for a character that
    the tokenizer cannot express.
    """
    before, after = added_ids(tokenizer)
    token_ids = _ids(prompt, tokenizer, add_special_tokens=True, split_special_tokens=True)
    if after and token_ids[-len(after) :] == after:
        token_ids = token_ids[: -len(after)]
    _require_known(token_ids, prompt, tokenizer, allowed=before)
    return token_ids


def text_ids(text: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Ids of a text in the middle of others: no control token before, behind or within it.

    Raises `UsageError` for a character that the tokenizer cannot express.
    """
    token_ids = _ids(text, tokenizer, add_special_tokens=False, split_special_tokens=True)
    _require_known(token_ids, text, tokenizer)
    return token_ids


def chat_ids(prompt: str, question: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Ids of what a chat template wrote: its control tokens are read as such, those spelled inside the question are not.

    Raises `UsageError` for a character that the tokenizer cannot express, and for a control token in a question that the
    template changed, so that nobody can tell which one is whose.
    """
    asked = question.strip()
    spelled = sorted(text for text in control_tokens(tokenizer).values() if text in asked)
    if not spelled:
        return _chat_piece(prompt, tokenizer)
    start = prompt.rfind(asked)
    if start < 0:
        raise UsageError(
            f"the question {asked[:60]!r} holds the control token {spelled[0]}, and the chat template rewrites questions; "
            "leave this problem out"
        )
    inside = _ids(asked, tokenizer, add_special_tokens=False, split_special_tokens=True)
    _require_known(inside, asked, tokenizer)
    outside = (_chat_piece(part, tokenizer) for part in (prompt[:start], prompt[start + len(asked) :]))
    return [*next(outside), *inside, *next(outside)]


def added_ids(tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and after every text."""
    full = _ids("0", tokenizer, add_special_tokens=True)
    text = _ids("0", tokenizer, add_special_tokens=False)
    for start in range(len(full) - len(text) + 1):
        if text and full[start : start + len(text)] == text:
            return full[:start], full[start + len(text) :]
    return full, []


def control_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """Every special token by its id."""
    special = {index: token.content for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return special | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def _chat_piece(text: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    token_ids = _ids(text, tokenizer, add_special_tokens=False)
    unknown, written = tokenizer.unk_token_id, str(tokenizer.unk_token)
    allowed = [] if unknown is None else [unknown] * text.count(written)
    _require_known(token_ids, text, tokenizer, allowed=allowed)
    return token_ids


def _ids(text: str, tokenizer: "PreTrainedTokenizerBase", **options: bool) -> list[int]:
    encoded: Any = tokenizer(text, verbose=False, **options)
    return [int(token) for token in encoded["input_ids"]]


def _require_known(
    token_ids: list[int], text: str, tokenizer: "PreTrainedTokenizerBase", allowed: list[int] | None = None
) -> None:
    """Refuse an unknown id that nobody wrote. Some tokenizers have one id for unknown, begin and end: `allowed` are those
    that stand there on purpose."""
    unknown = tokenizer.unk_token_id
    if unknown is not None and token_ids.count(unknown) > (allowed or []).count(unknown):
        raise UsageError(
            f"this model's tokenizer cannot express the prompt {text[-60:]!r}; its vocabulary lacks some of the characters"
        )
