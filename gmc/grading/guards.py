r"""What must hold before a computer algebra system is asked, because its parser loses it.

math-verify drops what it cannot parse: words, dots, the mass in `m\frac{dv}{dt}`. So letters, primes and subscripts are
compared here, on the text, and a power that no computer writes out is not handed on.
"""

import re

from gmc.grading.numbers import read_number

DIFFERENTIAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d(?:\^\w)? ?(?:[a-zA-Z]|\\[a-z]+)?\}\{d ?(?:[a-zA-Z]|\\[a-z]+)")
_GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
    r"|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell|hbar)"
)
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]'*(?:_(?:[a-zA-Z0-9]|\{[^{}]*\}))?'*")
# Letters that a sum, product, limit or definite integral binds.
_INDEX = re.compile(r"\\(?:sum|prod|lim)_\{?([a-zA-Z])(?==|\\to)")
_DEFINITE = re.compile(r"\\int_.*?d ?([a-zA-Z])(?![a-zA-Z])")
_DROPPED = re.compile(r"\\(?:ldots|text)(?![a-zA-Z])")
_INTEGRATION = re.compile(r"\+ ?[cC]$")
_NUMERIC_POWER = re.compile(r"[\d)]\^(\d|\{(?:[^{}]|\{[^{}]*\})*\})")
_LARGEST_EXPONENT = 10_000
_LONGEST_EXPRESSION = 600


def comparable(gold: str, answer: str) -> bool:
    """Whether two normalized expressions may be equal: both are readable and of a sane size, and they use the same letters."""
    if any(len(text) > _LONGEST_EXPRESSION or _DROPPED.search(text) or _has_tower(text) for text in (gold, answer)):
        return False
    gold, answer = same_constant(gold, answer)
    return letters(gold) == letters(answer)


def same_constant(gold: str, answer: str) -> tuple[str, str]:
    """The two texts with one spelling of an additive constant of integration, which may change its case."""
    if _INTEGRATION.search(gold) and _INTEGRATION.search(answer):
        return gold[:-1] + "c", answer[:-1] + "c"
    return gold, answer


def letters(text: str) -> set[str]:
    """Free letters of an expression with their primes and subscripts, Greek ones too; constants and functions left out."""
    found = {name for name in _LETTER.findall(text) if not name.startswith("\\") or _GREEK.fullmatch(name)}
    bound = {"e", "i", *_INDEX.findall(text)}
    if DIFFERENTIAL.search(text):
        bound |= {"d", *_DEFINITE.findall(text)}
    return found - bound


def _has_tower(text: str) -> bool:
    """Whether a number is raised to a power that no computer writes out."""
    exponents = [read_number(exponent) for exponent in _NUMERIC_POWER.findall(text)]
    return any(number is not None and (number.huge or abs(number.value) > _LARGEST_EXPONENT) for number in exponents)
