"""Thinking blocks: what opens and closes them in text, in prompts and as special tokens. What is thought is no answer."""

import re

_TAGS = "think|thinking|thought|reasoning|reflection|scratchpad"
# Every repetition is bounded, so that time stays linear in the text.
_OPEN = re.compile(
    rf"<\s{{0,4}}(?:seed:)?(?:{_TAGS})\s{{0,4}}>|\[THINK\]|◁think▷|<\|(?:begin_of_thought|START_THINKING)\|>"
    r"|<\|channel\|>(?:analysis|commentary)[^<]{0,99}<\|message\|>|<\|channel>thought",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    rf"<\s{{0,4}}/\s{{0,4}}(?:seed:)?(?:{_TAGS})\s{{0,4}}>|\[/THINK\]|◁/think▷|<\|(?:end_of_thought|END_THINKING)\|>"
    r"|<\|channel\|>final[^<]{0,99}<\|message\|>|<channel\|>",
    re.IGNORECASE,
)
_PART = re.compile(r"<\|(?:channel|message)\|>|<\|channel>|<\s{0,4}/?\s{0,4}answer\s{0,4}>", re.IGNORECASE)


def is_mark(token: str) -> bool:
    """Whether a token's text opens, closes or is a part of what the grader reads as thinking, or is an answer tag."""
    return any(pattern.fullmatch(token) is not None for pattern in (_OPEN, _CLOSE, _PART))


def opens_thinking(prompt: str, question: str = "") -> bool:
    """Whether a response to this prompt begins inside a thinking block: behind the question, one is opened and not closed.

    Chat templates of reasoning models end in `<think>`, so that the response itself never holds the opening tag. A question
    may speak of tags, so what stands before its end does not count; where it is unknown, all of the prompt does.
    """
    asked = question.strip()
    found = prompt.rfind(asked) if asked else -1
    marks = _marks(prompt if found < 0 else prompt[found + len(asked) :])
    return bool(marks) and marks[-1][2]


def drop_thinking(text: str, *, opened: bool = False) -> str:
    """Remove closed thinking blocks. An opening tag that is never closed takes everything behind it along.

    opened: the prompt opened a block, so that the text begins inside it; a text that begins with the tag repeats the prompt's.
    A closing tag without an opening one (the tag stood in the prompt) ends a block that began with the response.
    """
    marks = _marks(text)
    repeated = bool(marks) and marks[0][2] and not text[: marks[0][0]].strip()
    kept: list[str] = []
    position, depth = 0, int(opened and not repeated)
    for start, end, opens in marks:
        if opens:
            if depth == 0:
                kept.append(text[position:start])
            depth += 1
        else:
            if depth == 0:
                kept.clear()
            depth = max(depth - 1, 0)
            position = end
    if depth == 0:
        kept.append(text[position:])
    return "".join(kept)


def _marks(text: str) -> list[tuple[int, int, bool]]:
    """Start, end and whether it opens, of every mark in order."""
    if not any(character in text for character in "<[◁"):
        return []
    marks = [(match.start(), match.end(), True) for match in _OPEN.finditer(text)]
    return sorted(marks + [(match.start(), match.end(), False) for match in _CLOSE.finditer(text)])
