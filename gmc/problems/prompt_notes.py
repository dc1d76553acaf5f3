"""What a person should know about the prompts that a template and a tokenizer make together."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from gmc.problems.chat import TODAY, writes_date
from gmc.problems.templates import Template
from gmc.problems.tokens import added_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def prompt_notes(template: Template, tokenizer: "PreTrainedTokenizerBase", end_token_ids: Collection[int]) -> list[str]:
    """One line for each surprise: appended tokens, a date, a prompt that ends in an end token. Usually none.

    Raises `UsageError` when the tokenizer's chat template is wanted and does not work.
    """
    if not template.chat:
        _, after = added_ids(tokenizer)
        names = " ".join(tokenizer.convert_ids_to_tokens(after))
        return [f"the tokenizer appends {names} to every text; prompts are used without it"] if after else []
    notes = []
    if writes_date(tokenizer):
        notes.append(f"the chat template writes the date; prompts of gmc always say {TODAY:%Y-%m-%d}")
    if template.encode(template.render("?", tokenizer), tokenizer, "?")[-1] in end_token_ids:
        notes.append("the chat template ends prompts in an end token, after which many models have nothing to say")
    return notes
