r"""The shapes an answer can have, and cutting a normalized text at its outermost marks."""

import re
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Leaf:
    """One value or expression, in normalized LaTeX."""

    text: str


@dataclass(frozen=True)
class Words:
    """A text answer, compared as text only."""

    text: str


@dataclass(frozen=True)
class Several:
    """Values joined by commas, "and" or "or": order does not matter. braced: a set, so repeats do not count."""

    items: tuple["Shape", ...]
    braced: bool = False


@dataclass(frozen=True)
class Sequence:
    """Values in brackets, in order: a tuple, point, vector, or (two values, or a square bracket) an interval."""

    left: str
    items: tuple["Shape", ...]
    right: str


@dataclass(frozen=True)
class Union:
    r"""Parts joined by `\\cup`; order does not matter. Inequalities become unions of intervals."""

    parts: tuple["Shape", ...]
    variable: str = ""


@dataclass(frozen=True)
class Named:
    """A name and its value: `x=5`, `f(x)=2x`, `|AB|=6`."""

    name: str
    value: "Shape"


@dataclass(frozen=True)
class Relation:
    r"""A chain of sides and relations that is not a plain assignment; `>` and `\\ge` are turned round, so all point upwards."""

    sides: tuple[str, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Congruence:
    """`name` is congruent to `residue` modulo `modulus`."""

    name: str
    residue: str
    modulus: str


@dataclass(frozen=True)
class Matrix:
    """Rows of cells."""

    rows: tuple[tuple["Shape", ...], ...]


Shape: TypeAlias = Leaf | Words | Several | Sequence | Union | Named | Relation | Congruence | Matrix


_MARK = re.compile(r"\\begin\{[a-zA-Z*]+\}|\\end\{[a-zA-Z*]+\}|\\text\{[^{}]*\}|\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil", r"\langle")
_CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil", r"\rangle")


def tokens_with_depth(text: str) -> list[tuple[str, int, int]]:
    """Tokens as (token, start, depth); an opening and its closing token carry the depth outside them."""
    found: list[tuple[str, int, int]] = []
    depth = 0
    for match in _MARK.finditer(text):
        token = match.group()
        opens = token in _OPENING or token.startswith(r"\begin{")
        closes = token in _CLOSING or token.startswith(r"\end{")
        if closes:
            depth -= 1
        found.append((token, match.start(), depth))
        if opens:
            depth += 1
    return found


def split_outside(text: str, separators: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split at separators of depth 0. Returns (part, separator behind it); the last separator is empty."""
    parts: list[tuple[str, str]] = []
    start = 0
    for token, position, depth in tokens_with_depth(text):
        if depth == 0 and token in separators:
            parts.append((text[start:position].strip(), token))
            start = position + len(token)
    parts.append((text[start:].strip(), ""))
    return parts


def enclosed(text: str) -> tuple[str, str, str] | None:
    """(opening, inside, closing) when the first bracket closes with the last token. Brackets need not match in kind."""
    tokens = tokens_with_depth(text)
    if len(tokens) < 2 or tokens[0][0] not in _OPENING or tokens[-1][0] not in _CLOSING or tokens[-1][2] != 0:
        return None
    if any(depth == 0 for _, _, depth in tokens[1:-1]):
        return None
    first, last = tokens[0][0], tokens[-1][0]
    return first, text[len(first) : len(text) - len(last)].strip(), last


def balanced(text: str) -> bool:
    """Whether every bracket, brace and environment closes, never before it opens. Brackets of unequal kind may pair."""
    depth = 0
    for token, _, depth in tokens_with_depth(text):
        if depth < 0:
            return False
        opens = token in _OPENING or token.startswith(r"\begin{")
        depth += opens
    return depth == 0
