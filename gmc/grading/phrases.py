r"""Answers stated in prose: "The answer is 12.", "#### 12", "Ответ: 12", a closing sentence, or a response that is only an answer.

Prose is searched from its last lines backwards and in bounded windows, so time stays linear in the length of the text.
"""

import re

_WINDOW = 600
_STATEMENT = re.compile(
    r"\#{4}[ \t]*(?=\S)"
    r"|(?:(?<![a-z])final[ \t]+answer|(?<![a-z])answer)(?![a-z])(?:[ \t]+(?!is\b|are\b)[a-z]+){0,6}"
    r"[ \t]*(?:\*\*|__|\]|\))?[ \t]*"
    r"(?:(?:is|are|would[ \t]+be|equals|should[ \t]+be)(?![a-z])(?:[ \t]+(?:therefore|thus|simply|then|hence|just))?[ \t]*(?::|：)?|:|：|=)"
    r"(?:[ \t]*(?:\*\*|__))?"
    r"|(?:\#{1,6}[ \t]*|\*\*)(?:final[ \t]+)?answer(?:[ \t]*\*\*)?[ \t]*\n"
    r"|\b(?:la[ \t]+réponse(?:[ \t]+finale)?[ \t]+est|réponse(?:[ \t]+finale)?[ \t]*:|die[ \t]+(?:antwort|lösung)[ \t]+(?:ist|lautet)"
    r"|(?:antwort|lösung|ergebnis)[ \t]*:|la[ \t]+respuesta(?:[ \t]+final)?[ \t]+es|respuesta(?:[ \t]+final)?[ \t]*:"
    r"|a[ \t]+resposta(?:[ \t]+final)?[ \t]+é|resposta(?:[ \t]+final)?[ \t]*:|la[ \t]+risposta(?:[ \t]+finale)?[ \t]+è"
    r"|risposta[ \t]*:|het[ \t]+antwoord[ \t]+is|antwoord[ \t]*:|odpowiedź[ \t]*:|cevap[ \t]*:|đáp[ \t]+án[ \t]*(?:là|:)"
    r"|ответ(?:ом[ \t]+является)?[ \t]*[:—–-]?)[ \t]*:?"
    r"|(?:最终)?答案(?:[是为為]|[:：])+|答[:：]|答え(?:は|[:：])+|정답(?:은|[:：])+|답(?:은|[:：])+|उत्तर[ \t]*(?:है)?[:：]?|الجواب(?:[ \t]+هو)?[:：]?",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?。](?=[\s\"'”)*]|$)|\n|。|</|I hope")
_ASIDE = re.compile(
    r"\s*(?:,\s*|\()?(?<![\w\\])(?:because|since|which|as\s+(?:required|desired|wanted|stated|claimed)|so\s+that|and\s+(?:we|this|the)|"
    r"after|given\s+that|when\s+rounded|assuming)(?![\w]).*",
    re.IGNORECASE | re.DOTALL,
)
_LEADING = re.compile(
    r"(?:therefore|thus|simply|just|exactly|precisely|equal\s+to|given\s+by|option|choice|about|approximately|only|indeed|now|clearly)"
    r"(?![a-z])[\s:,]*",
    re.IGNORECASE,
)
_NOT_BUT = re.compile(r"not\s+.{1,60}?\s+but\s+(?:rather\s+)?", re.IGNORECASE | re.DOTALL)
_NUMBER = (
    r"(?:\\?\$|€|£)?\s?[-−–+±]?\s?(?:\\?\$)?(?:\d{1,3}(?:(?:,|\{,\}|\u202f|\u00a0)\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+|\s?(?:×|x|\\times|\\cdot|\*)\s?10\^\{?-?\d+\}?)?(?:\s\d+)?(?:\s?[/:]\s?\d+)?(?:\s?\\?%|\s?°|\s?π)?"
)
_MATH = r"(?:\$[^$\n]{1,300}\$|\\\([^\n]{1,300}?\\\))"
_COPULA = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals|equal\s+to|makes|made|gives|gets?|has|have|had|costs?|needs?|leaves|remains?|totals?|of|"
    r"est|ist|es|é|è|sont|sind|son)|=|:)\s+(?:(?:exactly|only|just|about|a\s+total\s+of)\s+)?"
    rf"(?P<value>\**(?:{_MATH}|{_NUMBER})\**(?:\s[A-Za-z²³][A-Za-z²³/-]*){{0,4}}"
    r"|[a-z]+|\*\*[^*\n]{1,80}\*\*)(?:,\s+(?:altogether|in\s+total|in\s+all|total|each))?\s*\.?$",
    re.IGNORECASE,
)
_BOLD_END = re.compile(r"[=:]\s*\*\*(?P<value>[^*\n]{1,80})\*\*[.\s]*$")
_OPEN_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_LAST_NUMBER = re.compile(_NUMBER)
_INLINE = re.compile(r"\$([^$\n]{1,300})\$|\\\(([^\n]{1,300}?)\\\)")


def stated_answer(text: str, *, complete: bool) -> str | None:
    """The answer after the last phrase that states one; None when there is none.

    complete: the text was cut at a length limit, so the stated answer counts only when something follows it.
    """
    found: str | None = None
    for match in _STATEMENT.finditer(text):
        value = _value_after(text, match.end(), complete)
        if value and not _OPEN_BOX.search(value):
            found = value
    return found


def _value_after(text: str, start: int, complete: bool) -> str | None:
    """The value that a statement introduces: to the end of its sentence, less asides."""
    region = text[start : start + _WINDOW]
    stripped = region.lstrip(" \t*_:：=")
    introduced = region[: len(region) - len(stripped)]
    if stripped.startswith("\n") and (
        ":" in introduced or "：" in introduced or "*" in introduced or text[start - 1 : start] in ":：*\n"
    ):
        stripped = stripped.lstrip()
    display = re.match(r"\s*(?:\\\[|\$\$)(.{1,500}?)(?:\\\]|\$\$)", stripped, re.DOTALL)
    if display:
        return display.group(1).strip()
    end = _sentence_end(stripped)
    if end is None:
        if complete:
            return None
        end = len(stripped)
    value = stripped[:end].strip().strip("*_` ")
    if negated := _NOT_BUT.match(value):
        value = value[negated.end() :]
    while leading := _LEADING.match(value):
        value = value[leading.end() :]
    return _ASIDE.sub("", value, count=1).strip().strip("*_`").strip() or None


def _sentence_end(text: str) -> int | None:
    """Where the first sentence ends: a full stop that is not a decimal point and not inside math."""
    math = [match.span() for match in _INLINE.finditer(text)]
    for match in _SENTENCE_END.finditer(text):
        inside = any(begin < match.start() < end - 1 for begin, end in math)
        abbreviated = match.group() == "." and re.search(
            r"\b[ap]\.m$|\ba$|\bp$", text[max(0, match.start() - 4) : match.start()]
        )
        if not inside and not (abbreviated and text[match.end() : match.end() + 2].strip()[:1].islower()):
            return match.start()
    return None


def closing_sentence(text: str) -> str | None:
    """The value of a complete last sentence that states one: "That makes 84 stamps.", "58 + 69 = **127**"."""
    tail = text.rstrip()[-_WINDOW:]
    if bold := _BOLD_END.search(tail):
        return bold["value"]
    if not tail.endswith((".", "**", ".$", "!")):
        return None
    sentence = re.split(r"(?<=[.!?])\s+|\n", tail)[-1]
    match = _COPULA.search(sentence.rstrip("!"))
    return match["value"].strip("*") if match else None


def whole_answer(text: str) -> str | None:
    """A response that is nothing but an answer: one line of mathematics, or at most three words."""
    line = text.strip()
    if not line or "\n" in line or len(line) > 200 or _OPEN_BOX.search(line):
        return None
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", re.sub(r"\\text\s*\{[^{}]*\}", "", line))
    if len(words) > 3 or line.endswith("="):
        return None
    return line.replace("**", "")


def last_number(text: str) -> str | None:
    """The last number of a text, with its sign, fraction, exponent and percent sign (lenient mode only)."""
    tail = text[-4000:]
    last = None
    for match in _LAST_NUMBER.finditer(tail):
        last = match
    return last.group().strip() if last else None
