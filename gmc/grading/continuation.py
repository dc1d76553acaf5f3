"""Cut from a response what is not its answer: thinking, and the new problems a base model goes on to write."""

import re

_TAGS = "think|thinking|thought|reasoning|reflection|scratchpad"
_THINK_OPEN = re.compile(rf"<\s{{0,4}}(?:{_TAGS})\s{{0,4}}>|<\|begin_of_thought\|>", re.IGNORECASE)
_THINK_CLOSE = re.compile(rf"<\s{{0,4}}/\s{{0,4}}(?:{_TAGS})\s{{0,4}}>|<\|end_of_thought\|>", re.IGNORECASE)
# Every repetition is bounded, so that time stays linear in the text.
_S = r"[ \t]{0,8}"
_CUT = re.compile(
    r"I\s{1,8}hope\s{1,8}it\s{1,8}is\s{1,8}correct"
    r"|<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|start_header_id|user)\|>|</s>|<end_of_turn>"
    rf"|(?P<heading>(?:^|\n){_S}(?:\#{{1,6}}{_S}|\*\*{_S})?(?:(?:Next|New|Another|Second){_S})?"
    rf"(?:Problem|Question|Exercise|Q|Human|User|Instruction)(?:{_S}\d{{1,6}})?{_S}(?:\*\*)?{_S}(?::|\n))",
    re.IGNORECASE,
)


def drop_thinking(text: str) -> str:
    """Remove closed thinking blocks. An opening tag that is never closed takes everything behind it along.

    A closing tag without an opening one (the tag stood in the prompt) ends a block that began with the response.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    position, depth = 0, 0
    marks = [(m.start(), m.end(), True) for m in _THINK_OPEN.finditer(text)]
    marks += [(m.start(), m.end(), False) for m in _THINK_CLOSE.finditer(text)]
    for start, end, opens in sorted(marks):
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


def cut_continuation(text: str) -> str:
    """Keep what stands before the first sign that the model began another problem or turn.

    A response may open by restating its problem: a heading at its very start, or after a line that ends in a colon, is no cut.
    """
    for match in _CUT.finditer(text):
        before = text[: match.start()].strip()
        if before and not (match["heading"] is not None and "\n" not in before and before.endswith(":")):
            return text[: match.start()]
    return text
