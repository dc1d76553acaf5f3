r"""What must agree before a computer algebra system is asked, because its parser loses it.

math-verify reads `f'(2)` as `f(2)`, `A` as `a`, `cd` as a differential, and drops what it cannot parse. So letters, primes and
subscripts are compared here, on the text, and letters the parser mistreats are renamed.
"""

import re

from gmc.grading.boxes import closing_braces
from gmc.grading.rational import NotRationalError, TooLargeError, evaluate

_SYMBOL = re.compile(
    r"\\(?P<command>[a-zA-Z]+)|(?P<letter>[a-zA-Z])(?P<prime>'*)(?:_(?P<short>[a-zA-Z0-9])|_\{(?P<long>[^{}]*)\})?(?P<after>'*)"
)
_GREEK = frozenset([
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "rho",
    "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi",
    "Psi", "Omega", "ell", "hbar",
])  # fmt: skip
_CONSTANTS = frozenset("ei")
_DIFFERENTIAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d(?:\^\w)? ?(?:[a-zA-Z]|\\[a-z]+)?\}\{d ?(?:[a-zA-Z]|\\[a-z]+)")
_TEXT = re.compile(r"\\text\{")
_SIDE_BY_SIDE = re.compile(r"(?<!_)\d \d")
# Letters that a sum, product, limit or definite integral binds.
_INDEX = re.compile(r"\\(?:sum|prod|lim)_\{?([a-zA-Z])(?==|\\to)")
_DEFINITE = re.compile(r"\\int_.*?d ?([a-zA-Z])(?![a-zA-Z])")
_UNREADABLE = re.compile(r"__|[@#?`~\"]|\\(?:ldots|text|url|href|input|write|def)(?![a-zA-Z])")
# A sum or product over a hundred thousand terms or more is not evaluated.
_LONG_RANGE = re.compile(r"\\(?:sum|prod)_.*?(?:\d{6}|10\^\{?(?:[5-9]|\d\d))")
_NUMERIC_POWER = re.compile(r"[\d)]\^(?=[{\d])")
_LARGEST_EXPONENT = 10_000
MAX_EXPRESSION = 600
MAX_NESTING = 60


def unreadable(text: str) -> bool:
    """Whether a text is no expression at all, or too large a one to hand to a parser."""
    if len(text) > MAX_EXPRESSION or _SIDE_BY_SIDE.search(text) or _UNREADABLE.search(text) or _LONG_RANGE.search(text):
        return True
    depth = deepest = 0
    for mark in text:
        depth += (mark in "({[") - (mark in ")}]")
        deepest = max(deepest, depth)
    return deepest > MAX_NESTING or _has_tower(text)


def _has_tower(text: str) -> bool:
    """Whether a number is raised to a power that no computer writes out."""
    closing = closing_braces(text)
    for match in _NUMERIC_POWER.finditer(text):
        start = match.end()
        exponent = text[start + 1 : closing[start]] if start in closing else text[start : start + 1]
        try:
            if abs(evaluate(exponent)) > _LARGEST_EXPONENT:
                return True
        except TooLargeError:
            return True
        except NotRationalError:
            continue
    return False


def symbols(text: str) -> frozenset[str]:
    """Free letters of an expression with their primes and subscripts, Greek ones too; constants and functions left out."""
    found: set[str] = set()
    for match in _SYMBOL.finditer(text):
        if match["command"]:
            if match["command"] in _GREEK:
                found.add(match["command"])
            continue
        name = match["letter"] + match["prime"] + match["after"]
        subscript = match["short"] or match["long"]
        if subscript:
            name += f"_{subscript}"
        if name not in _CONSTANTS:
            found.add(name)
    bound = set(_INDEX.findall(text))
    if _DIFFERENTIAL.search(text):
        bound |= {"d", *_DEFINITE.findall(text)}
    return frozenset(found - bound)


def same_symbols(gold: str, answer: str) -> bool:
    """Whether two expressions use the same letters. An additive constant of integration may change its case."""
    left, right = symbols(gold), symbols(answer)
    if left == right:
        return True
    extra, missing = right - left, left - right
    return extra | missing == {"c", "C"} and all(re.search(r"\+ ?[cC]$", text) for text in (gold, answer))


def rename(gold: str, answer: str) -> tuple[str, str]:
    """Give capital, primed and `d` letters plain lower-case names, the same in both texts."""
    if re.search(r"\+ ?[cC]$", gold) and re.search(r"\+ ?[cC]$", answer):
        gold, answer = gold[:-1] + "c", answer[:-1] + "c"
    differential = _DIFFERENTIAL.search(gold + answer)
    used = {match["letter"] for match in _SYMBOL.finditer(gold + " " + answer) if match["letter"]}
    spare = [letter for letter in "xyztuvwabcmnpqrskl" if letter not in used]
    names: dict[str, str] = {}
    for text in (gold, answer):
        for match in _SYMBOL.finditer(text):
            letter = match["letter"]
            if not letter:
                continue
            primes = match["prime"] + match["after"]
            if letter + primes in names or not (letter.isupper() or primes or (letter == "d" and not differential)):
                continue
            if not spare:
                return gold, answer
            names[letter + primes] = spare.pop(0)

    def replace(match: re.Match[str]) -> str:
        letter = match["letter"]
        if not letter:
            return match.group()
        name = names.get(letter + match["prime"] + match["after"])
        if name is None:
            return match.group()
        subscript = match["short"] or match["long"]
        return name + (f"_{{{subscript}}}" if subscript else "")

    return _SYMBOL.sub(replace, gold), _SYMBOL.sub(replace, answer)
