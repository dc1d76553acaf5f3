r"""Find the final answer that a response states.

Order: drop thinking, cut the continuation, then the last box, the last `<answer>` tag, the last stated final answer, a closing
sentence that states a value, and a response that is nothing but an answer. Only the lenient mode goes on to the last number.
"""

import re
from dataclasses import dataclass
from typing import Literal

from gmc.grading.boxes import last_boxed
from gmc.grading.continuation import cut_continuation, drop_thinking
from gmc.grading.sentences import closing_sentence, last_number, whole_answer
from gmc.grading.statements import stated_answer

Source = Literal["box", "answer tag", "stated answer", "closing sentence", "whole response", "last number", "none"]

_ANSWER_TAG = re.compile(r"<\s{0,4}/?\s{0,4}answer\s{0,4}>", re.IGNORECASE)


@dataclass(frozen=True)
class Extraction:
    """The answer's text as the response spells it (None: no answer found) and where it was found."""

    text: str | None
    source: Source


def extract(response: str, *, strict: bool = True, truncated: bool = False) -> Extraction:
    """Extract the final answer from a response.

    strict: for training; a number that merely stands last is no answer. With strict=False it is one.
    truncated: the response was cut at the length limit; only an answer that is visibly complete counts.
    Time is linear in the length of the response.
    """
    text = cut_continuation(drop_thinking(response))
    tagged = _last_tag(text)
    boxed = last_boxed(text if tagged is None else tagged) or last_boxed(text)
    if boxed is not None:
        return Extraction(boxed, "box")
    if tagged is not None:
        return Extraction(stated_answer(tagged, complete=False) or tagged, "answer tag")
    stated = stated_answer(text, complete=truncated)
    if stated is not None:
        return Extraction(stated, "stated answer")
    if truncated:
        return Extraction(None, "none")
    sentence = closing_sentence(text)
    if sentence is not None:
        return Extraction(sentence, "closing sentence")
    whole = whole_answer(text)
    if whole is not None:
        return Extraction(whole, "whole response")
    number = None if strict else last_number(text)
    return Extraction(number, "none" if number is None else "last number")


def _last_tag(text: str) -> str | None:
    """Content of the last closed `<answer>` tag that is not empty."""
    if "<" not in text:
        return None
    opened: int | None = None
    content: str | None = None
    for match in _ANSWER_TAG.finditer(text):
        if "/" not in match.group():
            opened = match.end()
        elif opened is not None:
            content = text[opened : match.start()].strip() or content
            opened = None
    return content
