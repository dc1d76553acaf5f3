r"""One spelling for every way to write the same LaTeX answer.

`normalize` changes spelling, never value: delimiters, spacing, fonts and sizes go; `\frac12`, `\dfrac{1}{2}` and `½` become
`\frac{1}{2}`; words stay inside `\text{...}`. It is idempotent.
"""

import re
from functools import lru_cache

from gmc.grading.glyphs import to_latex
from gmc.grading.rules import SYMBOLS, WRAPPING

MAX_ANSWER = 2000
_MAX_PASSES = 20
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_SPLIT_TEXT = re.compile(r"(\\text\{[^{}]*\})")
_EDGES = " ,;:=\"'"
_KEY_SPACE = re.compile(r"(?<!\d) | (?!\d)")


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The canonical spelling of an answer; one longer than `MAX_ANSWER` characters comes back unchanged."""
    if _PLAIN.fullmatch(text) or len(text) > MAX_ANSWER:
        return text
    text = to_latex(text)
    for _ in range(_MAX_PASSES):
        before = text
        text = _pass(text)
        if text == before:
            break
    return text


def _pass(text: str) -> str:
    """Apply every rule once."""
    for pattern, replacement in WRAPPING:
        text = pattern.sub(replacement, text)
    parts = _SPLIT_TEXT.split(text)
    for index in range(0, len(parts), 2):
        for pattern, replacement in SYMBOLS:
            parts[index] = pattern.sub(replacement, parts[index])
    return _trim("".join(parts))


def _trim(text: str) -> str:
    """Drop punctuation around the answer, and braces and quotes that enclose all of it."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}") and not text.endswith("\\}") and _encloses(text):
        text = text[1:-1]
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        text = text[1:-1]
    text = text.lstrip(' ,;:="').rstrip(' ,;:="')
    while text.endswith(".") or text.endswith("\\\\") or text.endswith("。"):
        text = text[: -2 if text.endswith("\\\\") else -1].rstrip(' ,;:="')
    return text


def _encloses(text: str) -> bool:
    """Whether the first brace closes with the last character."""
    depth = 0
    for position, mark in enumerate(text):
        if mark in "{}" and text[position - 1 : position] != "\\":
            depth += 1 if mark == "{" else -1
            if depth == 0:
                return position == len(text) - 1
    return False


def text_key(normalized: str) -> str:
    r"""What two equal answers share: no spaces (but between digits), words in lower case and without their wrapper."""
    key = _SPLIT_TEXT.sub(lambda m: m.group()[6:-1].lower().replace(".", "").strip(), normalized)
    key = _KEY_SPACE.sub("", key)
    return key.lower() if is_words(normalized) else key


def is_words(normalized: str) -> bool:
    r"""Whether an answer is a word or phrase, not mathematics: letters, spaces and punctuation with a word of three letters.

    A single word in `\text{...}` counts whatever its length, single letters do not (they may be a choice or a variable).
    """
    bare = _SPLIT_TEXT.sub(lambda m: " " + m.group()[6:-1] + " ", normalized).strip()
    if not re.fullmatch(r"[^\W\d_][^\\={}^_<>+*/|]*", bare):
        return False
    return bool(re.search(r"[^\W\d_]{3,}", bare)) or ("\\text" in normalized and bool(re.search(r"[^\W\d_]{2,}", bare)))
