r"""Find the last answer that a response puts in a box: `\boxed{...}`, `\fbox{...}`, `\framebox{...}` or `\boxed 7`.

One pass over the braces whatever the text, so that a megabyte of open braces costs no more than a megabyte of prose.
"""

import re
from dataclasses import dataclass

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
