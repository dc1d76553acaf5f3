r"""Answers that prose states: "The answer is 12.", "#### 12", "**Final Answer:** 12", "Ответ: 12", "答案是 12"."""

import re

# Every repetition is bounded, so that time stays linear in the text whatever it holds.
_S = r"[ \t]{0,8}"
_BOLD = r"(?:\*\*|__)?"
_ADVERB = "(?:therefore|thus|simply|then|hence|just)(?![a-z])"
_IS = rf"(?:is|are|would be|should be|equals)(?![a-z])(?:{_S}{_ADVERB})?{_S}[:：]?|[:：=]"
_ENGLISH = (
    rf"(?:final[ \t]{{1,8}}answer|(?<![a-z])answers?)(?![a-z])(?:[ \t]{{1,8}}(?!(?:is|are)\b)[a-z]{{1,20}}){{0,6}}"
    rf"{_S}{_BOLD}{_S}(?:{_IS})"
)
_HEADING = rf"(?:\#{{1,6}}{_S}|\*\*)(?:final )?answer{_S}{_BOLD}{_S}\n"
_OTHER_LANGUAGES = (
    r"la réponse(?: finale)? est|réponse(?: finale)? ?:|die (?:antwort|lösung) (?:ist|lautet)|(?:antwort|lösung|ergebnis) ?:"
    r"|la respuesta(?: final)? es|respuesta(?: final)? ?:|a resposta(?: final)? é|resposta(?: final)? ?:"
    r"|la risposta(?: finale)? è|risposta ?:|het antwoord is|antwoord ?:|odpowiedź ?:|cevap ?:|đáp án ?(?:là|:)"
    r"|ответ(?: ?:| ?[—–-]|ом является)|उत्तर ?(?:है)?[:：]?|الجواب(?: هو)?[:：]?"
)
# Written without spaces between words.
_UNSPACED = r"答案(?:[是为為]|[:：])[:：]?|答[:：]|答え(?:は|[:：])|정답(?:은|[:：])|답(?:은|[:：])"
_STATEMENT = re.compile(
    rf"\#{{4}}{_S}(?=\S)|{_ENGLISH}{_S}{_BOLD}|{_HEADING}|(?:(?<!\w)(?:{_OTHER_LANGUAGES})|{_UNSPACED}){_S}:?{_BOLD}",
    re.IGNORECASE,
)
_WINDOW = 600
_TRIED = 50

_DISPLAY = re.compile(r"\s*(?:\\\[|\$\$)(.{1,500}?)(?:\\\]|\$\$)", re.DOTALL)
_INLINE = re.compile(r"\$[^$\n]{1,300}\$|\\\([^\n]{1,300}?\\\)")
_SENTENCE_END = re.compile(r"[.!?](?=[\s\"'”)*]|$)|\n|。|</|I hope")
_DAY_HALF = re.compile(r"(?<![a-z])[ap](?:\.m)?$", re.IGNORECASE)
_ASIDE = re.compile(
    r"\s*(?:,\s*|\()?(?<![\w\\])(?:because|since|which|as\s+(?:required|desired|wanted|stated|claimed)|so\s+that|and\s+(?:we|this|the)"
    r"|after|given\s+that|when\s+rounded|assuming)(?!\w).*",
    re.IGNORECASE | re.DOTALL,
)
_LEADING = re.compile(
    r"(?:therefore|thus|simply|just|exactly|precisely|equal\s+to|given\s+by|option|choice|about|approximately|only|indeed|clearly)"
    r"(?![a-z])[\s:,]*",
    re.IGNORECASE,
)
_NOT_BUT = re.compile(r"not\s+.{1,60}?\s+but\s+(?:rather\s+)?", re.IGNORECASE | re.DOTALL)
OPEN_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])")


def stated_answer(text: str, *, complete: bool) -> str | None:
    """The answer after the last phrase that states one; None when there is none.

    complete: the text was cut at a length limit, so a stated answer counts only when its sentence ends.
    """
    statements = list(_STATEMENT.finditer(text))
    for statement in reversed(statements[-_TRIED:]):
        value = _value_after(text, statement.end(), complete)
        # A box that never closes is an answer cut short, not an answer.
        if value and not OPEN_BOX.search(value):
            return value
    return None


def _value_after(text: str, start: int, complete: bool) -> str | None:
    """The value that a statement introduces: to the end of its sentence, less asides."""
    stripped = text[start : start + _WINDOW].lstrip(" \t*_:：=")
    if stripped.startswith("\n"):
        # On a line of its own below a heading or a colon.
        stripped = stripped.lstrip()
    display = _DISPLAY.match(stripped)
    if display:
        return display.group(1).strip()
    end = _sentence_end(stripped)
    if end is None and complete:
        return None
    value = stripped[:end].strip().strip("*_` ")
    if negated := _NOT_BUT.match(value):
        value = value[negated.end() :]
    while leading := _LEADING.match(value):
        value = value[leading.end() :]
    return _ASIDE.sub("", value, count=1).strip().strip("*_`").strip() or None


def _sentence_end(text: str) -> int | None:
    """Where the first sentence ends: a full stop that is no decimal point, not in mathematics, not in "a.m."."""
    mathematics = [match.span() for match in _INLINE.finditer(text)]
    for match in _SENTENCE_END.finditer(text):
        inside = any(begin < match.start() < end - 1 for begin, end in mathematics)
        if inside or (match.group() == "." and _DAY_HALF.search(text[: match.start()])):
            continue
        return match.start()
    return None


_TAIL = 600
_NUMBER = (
    r"(?:\\?\$|€|£)?\s?[-−–+±]?\s?(?:\\?\$)?(?:\d{1,3}(?:(?:,|\{,\}|\u202f|\u00a0)\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+|\s?(?:×|x|\\times|\\cdot|\*)\s?10\^\{?-?\d+\}?)?(?:\s\d+)?(?:\s?[/:]\s?\d+)?(?:\s?\\?%|\s?°|\s?π)?"
)
_MATHEMATICS = r"(?:\$[^$\n]{1,300}\$|\\\([^\n]{1,300}?\\\))"
_VERBS = (
    "is|are|was|were|be|equals|equal to|makes|made|gives|gets?|has|have|had|costs?|needs?|leaves|remains?|totals?|of"
    "|earns?|pays?|spends?|saves?|weighs?|takes?|travels?|sells?|buys?|receives?|owes?|finds?"
    r"|comes? to|amounts? to|adds? up to|sums? to|simplifies to|reduces to"
    "|est|ist|es|é|è|sont|sind|son"
)
_CLOSING = re.compile(
    rf"(?:\b(?:{_VERBS})|=|:)\s{{1,4}}(?:(?:exactly|only|just|about|a total of)\s)?"
    rf"(?P<value>\**(?:{_MATHEMATICS}|{_NUMBER})\**(?:\s[A-Za-z²³][A-Za-z²³/-]*){{0,4}}|[a-z]+|\*\*[^*\n]{{1,80}}\*\*)"
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
