r"""The symbolic tier, run inside a worker process: math-verify, gold first and wrapped in `\boxed{}`, with a numerical check.

math-verify rounds to six decimals, so two tiny numbers look equal to it. Every pair of expressions it can parse is therefore
evaluated to `_DIGITS` digits at fixed points first; math-verify compares what has no numerical value, such as sets.
"""

import logging
import random
import re

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from gmc.grading.compare import Comparer
from gmc.grading.leaves import DIFFERENTIAL, relations_equal, same_constant, values_equal
from gmc.grading.normalize import normalize
from gmc.grading.structure import readings

logging.getLogger("math_verify").setLevel(logging.CRITICAL)
logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)

_READING = [
    LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="all", equations=False
        ),
    )
]
_DEGREES = re.compile(r"(\d+(?:\.\d+)?|\([^()]*\)|(?<![a-zA-Z])[a-zA-Z])\^\\circ(?![a-zA-Z])")
_BRACED = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_NAME = r"\\(?:ln|log|lg|(?:arc)?(?:sin|cos|tan)|sec|csc|cot|sinh|cosh|tanh)(?:[_^](?:[0-9a-zA-Z]|\{[^{}]*\}))*"
_BRACED_ARGUMENT = re.compile(rf"({_NAME}){_BRACED}(?!\s*[\^_!'])")
"""A function with its argument in braces: they close it, so that `\\ln{2}/3` is a third of `\\ln 2`, as `\\ln(2)/3` is."""
_DIGITS = 40
_AGREEING = sympy.Float(10) ** -30
# Sample points per symbol: positive values, then signs mixed. Fixed, so that a verdict is reproducible.
_POINTS = (
    ("0.7318", "1.3927", "2.1173", "0.4159", "3.2719", "1.8131", "0.9377", "2.7193"),
    ("2.4519", "0.6173", "1.1597", "3.7331", "0.8837", "1.5913", "2.9171", "0.3719"),
    ("-1.2713", "0.8431", "-0.5197", "1.9733", "-2.3179", "0.6619", "-1.7393", "2.2817"),
)


_SYMBOL = re.compile(r"\\[a-zA-Z]+|(?P<letter>[a-zA-Z])(?P<before>'*)(?P<subscript>_[a-zA-Z0-9]|_\{[^{}]*\})?(?P<after>'*)")


def rename(gold: str, answer: str) -> tuple[str, str]:
    """Give capital, primed and `d` letters, which math-verify mistreats, plain lower-case names, the same in both texts."""
    gold, answer = same_constant(gold, answer)
    differential = DIFFERENTIAL.search(gold + answer)
    used = {match["letter"] for match in _SYMBOL.finditer(gold + " " + answer)}
    spare = [letter for letter in "xyztuvwabcmnpqrskl" if letter not in used]
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        letter = match["letter"] or ""
        primes = letter and match["before"] + match["after"]
        if spare and (letter.isupper() or primes or (letter == "d" and not differential)) and letter + primes not in names:
            names[letter + primes] = spare.pop(0)
        if letter + primes not in names:
            return match.group()
        return names[letter + primes] + (match["subscript"] or "")

    return _SYMBOL.sub(plain, gold), _SYMBOL.sub(plain, answer)


def answers_equal(gold: str, answer: str) -> bool:
    """Whether an extracted answer equals the gold, with the symbolic tier for its values. False when it cannot be told."""
    random.seed(0)
    sympy.core.random.seed(0)
    verdict = Comparer(_leaf, _relation).any_reading(readings(normalize(gold)), readings(normalize(answer)))
    return verdict is True


def _leaf(gold: str, answer: str) -> bool | None:
    cheap = values_equal(gold, answer)
    if cheap is not None:
        return cheap
    left, right = (_parse(text) for text in rename(gold, answer))
    if left is None or right is None:
        return False
    close = _numerically_equal(left, right)
    if close is not None:
        return close
    return bool(verify(left, right, strict=True, timeout_seconds=None))


def _relation(gold: str, answer: str) -> bool:
    if relations_equal(gold, answer) is False:
        return False
    left, right = (_parse(text) for text in rename(gold, answer))
    # math-verify falls back to the last side of an equation it cannot read; that would be an expression.
    if left is None or right is None or isinstance(left, sympy.Expr) or isinstance(right, sympy.Expr):
        return False
    return bool(verify(left, right, strict=True, timeout_seconds=None))


def _parse(text: str) -> sympy.Basic | None:
    """math-verify's reading of one expression, `i` as the imaginary unit."""
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", _BRACED_ARGUMENT.sub(r"\1(\2)", text))
    found = parse(f"\\boxed{{{text}}}", _READING, fallback_mode="no_fallback", parsing_timeout=None)
    if not found or isinstance(found[0], str):
        return None
    expression = found[0]
    exact = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    imaginary = {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    return expression.xreplace(exact | imaginary)


def _value(expression: sympy.Basic, points: dict[sympy.Symbol, sympy.Float]) -> sympy.Basic | None:
    """The expression's value at a point to `_DIGITS` digits, None when it has no finite numerical value there."""
    value = expression.evalf(_DIGITS, subs=points)
    return value if value.is_number and value.is_finite else None


def _samples(left: sympy.Basic, right: sympy.Basic) -> list[dict[sympy.Symbol, sympy.Float]]:
    names = sorted({symbol.name for symbol in left.free_symbols | right.free_symbols})
    if not names:
        return [{}]
    points = []
    for row in _POINTS:
        values = {name: sympy.Rational(row[index % len(row)]) for index, name in enumerate(names)}
        points.append({symbol: values[symbol.name] for symbol in left.free_symbols | right.free_symbols})
    return points


def _numerically_equal(left: sympy.Basic, right: sympy.Basic) -> bool | None:
    """Equal at every sample point, different at one, or None when the expressions have no numerical values."""
    if not all(isinstance(side, sympy.Expr) for side in (left, right)):
        return None
    checked = 0
    for number, points in enumerate(_samples(left, right)):
        one, other = _value(left, points), _value(right, points)
        if one is None or other is None:
            continue
        # Off the positive axis roots and logarithms branch; only real values are held against each other there.
        if number == len(_POINTS) - 1 and not (one.is_real and other.is_real):
            continue
        scale = max(abs(one), abs(other))
        if scale != 0 and abs(one - other) > _AGREEING * scale:
            return False
        checked += 1
    return True if checked else None
