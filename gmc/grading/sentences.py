"""Answers without an announcing phrase: a closing sentence, a response that is only an answer, a last number."""

import re

from gmc.grading.statements import OPEN_BOX

_TAIL = 600
_NUMBER = (
    r"(?:\\?\$|€|£)?\s?[-−–+±]?\s?(?:\\?\$)?(?:\d{1,3}(?:(?:,|\{,\}|\u202f|\u00a0)\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+|\s?(?:×|x|\\times|\\cdot|\*)\s?10\^\{?-?\d+\}?)?(?:\s\d+)?(?:\s?[/:]\s?\d+)?(?:\s?\\?%|\s?°|\s?π)?"
)
_INLINE = r"(?:\$[^$\n]{1,300}\$|\\\([^\n]{1,300}?\\\))"
_VERBS = (
    "is|are|was|were|be|equals|equal to|makes|made|gives|gets?|has|have|had|costs?|needs?|leaves|remains?|totals?|of"
    "|earns?|pays?|spends?|saves?|weighs?|takes?|travels?|sells?|buys?|receives?|owes?|finds?"
    r"|comes? to|amounts? to|adds? up to|sums? to|simplifies to|reduces to"
    "|est|ist|es|é|è|sont|sind|son"
)
_CLOSING = re.compile(
    rf"(?:\b(?:{_VERBS})|=|:)\s{{1,4}}(?:(?:exactly|only|just|about|a total of)\s)?"
    rf"(?P<value>\**(?:{_INLINE}|{_NUMBER})\**(?:\s[A-Za-z²³][A-Za-z²³/-]*){{0,4}}|[a-z]+|\*\*[^*\n]{{1,80}}\*\*)"
    r"(?:,\s(?:altogether|in total|in all|total|each))?\s{0,4}\.?$",
    re.IGNORECASE,
)
# A total says so: "She collected 33 shells, altogether."
_TOTAL = re.compile(
    rf"(?<![\w.,])(?P<value>{_NUMBER}(?:\s[A-Za-z][A-Za-z-]*){{0,4}}?),?\s(?:altogether|in total|in all)\s{{0,4}}\.?$",
    re.IGNORECASE,
)
_BOLD_END = re.compile(r"[=:]\s{0,4}\*\*(?P<value>[^*\n]{1,80})\*\*[.\s]{0,4}$")
_LAST_NUMBER = re.compile(_NUMBER)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_PREMISE = re.compile(r"(?:let|suppose|assume|if|since|given|when|step|case)\b", re.IGNORECASE)
_SENTENCE_BREAK = re.compile(r"[A-Za-z0-9)][.!?]\s+[A-Z]")
_LONGEST_LINE = 200
_MOST_WORDS = 3


def closing_sentence(text: str) -> str | None:
    """The value of a complete last sentence that states one: "That makes 84 stamps.", "58 + 69 = **127**"."""
    tail = text[-2 * _TAIL :].rstrip()[-_TAIL:]
    if bold := _BOLD_END.search(tail):
        return bold["value"]
    if not tail.endswith((".", "**", ".$", "!")):
        return None
    sentence = re.split(r"(?<=[.!?])\s|\n", tail)[-1].rstrip("!")
    match = _CLOSING.search(sentence) or _TOTAL.search(sentence)
    return match["value"].strip("*") if match and not OPEN_BOX.search(match["value"]) else None


def whole_answer(text: str) -> str | None:
    """A response that is nothing but an answer: one line of mathematics, or at most three words."""
    line = text.strip()
    if not line or "\n" in line or len(line) > _LONGEST_LINE or line.endswith("=") or OPEN_BOX.search(line):
        return None
    # One dollar sign is a price ("$5") or mathematics cut off in the middle ("$n = 2").
    if line.count("$") % 2 and not re.search(r"\$\s?\d", line):
        return None
    if _PREMISE.match(line) or _SENTENCE_BREAK.search(line):
        return None
    words = _WORD.findall(re.sub(r"\\text\s*\{[^{}]*\}", "", line))
    return line.replace("**", "").strip("_") if len(words) <= _MOST_WORDS else None


def last_number(text: str) -> str | None:
    """The last number of a text, with its sign, fraction, exponent and percent sign (lenient mode only)."""
    last = None
    for match in _LAST_NUMBER.finditer(text[-4000:]):
        last = match
    return last.group().strip() if last else None
