r"""Find the answer in a response: boxes first, then what prose states, then (leniently) a last number."""

import re
from dataclasses import dataclass
from typing import Literal

from gmc.grading.statements import closing_sentence, last_number, stated_answer, whole_answer
from gmc.grading.thinking import drop_thinking

_BRACE = re.compile(r"\\[\\{}]|[{}]")
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])\s*")
_BARE = re.compile(
    r"-?(?:\d[\d,]*(?:\.\d+)?|\\[dt]?frac\s*(?:\d\s*\d|\{[^{}]*\}\s*\{[^{}]*\}))(?=\s*(?:\$|\\\)|[.,;]?(?:\s|$)))"
)
_BLANK = re.compile(r"(?:\\text\s*\{\s*\}|\\[ ,;:!]|\\(?:[lc]?dots|quad|qquad)|[\s.?_~]|\{\s*\})*")
# What may stand between two boxes that together are one answer of several values.
_JOINT = re.compile(r"(?:[\s$,;&]|\\text|\\quad|\\ |\\[()]|\{|\}|\b(?:and|or)\b|(?<![a-z])\*+)*")
_PERCENT_AFTER = re.compile(r"[\s$]{0,8}(?:\\\))?\s{0,8}(?:\\?%|(?:\\text\s*\{\s*)?per\s?cent\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Box:
    """A box's content and where it stands: `text[start:end]` is the whole command."""

    content: str
    start: int
    end: int


def closing_braces(text: str) -> dict[int, int]:
    """Map the index of every matched opening brace to its closing brace; escaped braces count for nothing."""
    stack: list[int] = []
    closing: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        mark = match.group()
        if mark == "{":
            stack.append(match.start())
        elif mark == "}" and stack:
            closing[stack.pop()] = match.start()
    return closing


def find_boxes(text: str) -> list[Box]:
    """Every closed, outermost box that is not blank, in order of appearance. A box that is never closed is no box."""
    if "box" not in text:
        return []
    closing = closing_braces(text)
    boxes: list[Box] = []
    for match in _BOX.finditer(text):
        if boxes and match.start() < boxes[-1].end:
            continue
        after = match.end()
        if after < len(text) and text[after] == "{":
            if after not in closing:
                continue
            box = Box(text[after + 1 : closing[after]].strip(), match.start(), closing[after] + 1)
        elif bare := _BARE.match(text, after):
            box = Box(bare.group(), match.start(), bare.end())
        else:
            continue
        if not _BLANK.fullmatch(box.content):
            boxes.append(box)
    return boxes


def last_boxed(text: str) -> str | None:
    """The answer in the last box, or None.

    Boxes that stand side by side with nothing between them but "and", "or" or a comma are one answer of several values: a
    response that offers `\\boxed{5}` or `\\boxed{7}` has not chosen. A percent sign right behind the box belongs to the answer.
    """
    boxes = find_boxes(text)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first > 0:
        between = text[boxes[first - 1].end : boxes[first].start]
        if len(between) > 40 or "\n\n" in between or not _JOINT.fullmatch(between):
            break
        first -= 1
    contents = list(dict.fromkeys(box.content for box in boxes[first:]))
    answer = ", ".join(contents)
    if len(contents) == 1 and not answer.endswith("%") and _PERCENT_AFTER.match(text, boxes[-1].end):
        answer += r"\%"
    return answer


# Every repetition is bounded, so that time stays linear in the text.
_S = r"[ \t]{0,8}"
_CUT = re.compile(
    r"I\s{1,8}hope\s{1,8}it\s{1,8}is\s{1,8}correct"
    r"|<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|start_header_id|user)\|>|</s>|<end_of_turn>"
    rf"|(?P<heading>(?:^|\n){_S}(?:\#{{1,6}}{_S}|\*\*{_S})?(?:(?:Next|New|Another|Second){_S})?"
    rf"(?:Problem|Question|Exercise|Q|Human|User|Instruction)(?:{_S}\d{{1,6}})?{_S}(?:\*\*)?{_S}(?::|\n))",
    re.IGNORECASE,
)


def cut_continuation(text: str) -> str:
    """Keep what stands before the first sign that the model began another problem or turn.

    A response may open by restating its problem: a heading at its very start, or after a line that ends in a colon, is no cut.
    """
    for match in _CUT.finditer(text):
        before = text[: match.start()].strip()
        if before and not (match["heading"] is not None and "\n" not in before and before.endswith(":")):
            return text[: match.start()]
    return text


Source = Literal["box", "answer tag", "stated answer", "closing sentence", "whole response", "last number", "none"]

_ANSWER_TAG = re.compile(r"<\s{0,4}/?\s{0,4}answer\s{0,4}>", re.IGNORECASE)


@dataclass(frozen=True)
class Extraction:
    """The answer's text as the response spells it (None: no answer found) and where it was found."""

    text: str | None
    source: Source


def extract(response: str, *, strict: bool = True, truncated: bool = False, thinking: bool = False) -> Extraction:
    """Extract the final answer from a response.

    strict: for training; a number that merely stands last is no answer. With strict=False it is one.
    truncated: the response was cut at the length limit; only an answer that is visibly complete counts.
    thinking: the prompt opened a thinking block; what stands before its end is no answer.
    Time is linear in the length of the response.
    """
    text = cut_continuation(drop_thinking(response, opened=thinking))
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
