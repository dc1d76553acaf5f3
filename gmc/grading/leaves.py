r"""Compare two single values without a computer algebra system. True, False, or None when only the symbolic tier can tell.

Before that tier is asked, letters, primes and subscripts are compared here, on the text: math-verify drops what it cannot
parse, such as words, dots, and the mass in `m\frac{dv}{dt}`.
"""

import re
from fractions import Fraction

from gmc.grading.normalize import is_words, text_key
from gmc.grading.numbers import Number, numbers_equal, read_number
from gmc.grading.units import Quantity, compound, split_unit

_BASED = re.compile(r"(-?[0-9A-Za-z.]+)_\{?\(?(\d+)\)?\}?")
_LABELED = re.compile(r"\(?(?:\\text\{)?\(?([A-J])(?:\)|[.:]|\}(?= ))(?:\})?[:.)]? ?(.+)", re.DOTALL)
_LETTER = re.compile(r"\(?(?:\\text\{)?\(?([A-Za-z])\)?\}?\)?\.?")
_SEXAGESIMAL = re.compile(
    r"(-?\d{1,99}(?:\.\d{1,99})?)\^\\circ ?(?:(\d{1,99}(?:\.\d{1,99})?)')?(?:(\d{1,99}(?:\.\d{1,99})?)(?:''|\"))?"
)
_COLON = re.compile(r":|\\text\{to\}")
_NUMBER_NAMES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip
DIFFERENTIAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d(?:\^\w)? ?(?:[a-zA-Z]|\\[a-z]+)?\}\{d ?(?:[a-zA-Z]|\\[a-z]+)")
_GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
    r"|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell|hbar)"
)
_SYMBOL = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]'*(?:_(?:[a-zA-Z0-9]|\{[^{}]*\}))?'*")
# Letters that a sum, product, limit or definite integral binds.
_INDEX = re.compile(r"\\(?:sum|prod|lim)_\{?([a-zA-Z])(?==|\\to)")
_DEFINITE = re.compile(r"\\int_.*?d ?([a-zA-Z])(?![a-zA-Z])")
_DROPPED = re.compile(r"\\(?:ldots|text)(?![a-zA-Z])")
# A sum or product over a hundred thousand terms or more is not evaluated.
_LONG_RANGE = re.compile(r"\\(?:sum|prod)_.*?(?:\d{6}|10\^\{?(?:[5-9]|\d\d))")
_INTEGRATION = re.compile(r"\+ ?[cC]$")
_NUMERIC_POWER = re.compile(r"[\d)]\^(\d|\{(?:[^{}]|\{[^{}]*\})*\})")
_LARGEST_EXPONENT = 10_000
_LONGEST_EXPRESSION = 600


def values_equal(gold: str, answer: str) -> bool | None:
    """Whether two values are equal, None when only the symbolic tier can tell."""
    verdict = leaves_equal(gold, answer)
    return relations_equal(gold, answer) if verdict is None else verdict


def relations_equal(gold: str, answer: str) -> bool | None:
    """False when a guard rules equality out, else None: only the symbolic tier can tell."""
    return None if comparable(gold, answer) else False


def leaves_equal(gold: str, answer: str) -> bool | None:
    """Whether two normalized values are the same: True, False, or None when undecided."""
    if text_key(gold) == text_key(answer):
        return True
    for compare in (_choice, _based, _sexagesimal, _numbers, _words, _ratio):
        verdict = compare(gold, answer)
        if verdict is not None:
            return verdict
    return _quantities(gold, answer)


def _numbers(gold: str, answer: str) -> bool | None:
    left, right = number_or_name(gold), number_or_name(answer)
    if (left and left.huge) or (right and right.huge):
        return False
    return None if left is None or right is None else numbers_equal(left, right)


def number_or_name(text: str) -> Number | None:
    """A number in digits, or one of the first number words."""
    word = text_key(text)
    return Number(Fraction(_NUMBER_NAMES.index(word))) if word in _NUMBER_NAMES else read_number(text)


def _choice(gold: str, answer: str) -> bool | None:
    """Multiple choice: a letter against a letter with or without its option's text; a value against label and value."""
    wanted = _LETTER.fullmatch(gold)
    labeled = _LABELED.fullmatch(answer)
    if wanted and (wanted[1].isupper() or "(" in gold):
        given = _LETTER.fullmatch(answer)
        if given:
            same = given[1] == wanted[1] or ("(" in answer and given[1].upper() == wanted[1].upper())
            return same
        if labeled:
            return labeled[1] == wanted[1]
        return False if read_number(answer) is not None or is_words(answer) else None
    if labeled and not _LABELED.fullmatch(gold):
        return leaves_equal(gold, labeled[2].strip())
    return None


def _based(gold: str, answer: str) -> bool | None:
    """Numerals with a base: the same digits, and the same base unless one side leaves it out."""
    left, right = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if left is None and right is None:
        return None
    if (left or right) and not all(match is None or match[1].lstrip("-")[:1].isdigit() for match in (left, right)):
        return None
    digits = [match[1] if match else text for match, text in ((left, gold), (right, answer))]
    bases = {match[2] for match in (left, right) if match}
    return digits[0].upper() == digits[1].upper() and len(bases) == 1


def _sexagesimal(gold: str, answer: str) -> bool | None:
    """Degrees with minutes and seconds, against the same or against decimal degrees."""
    left, right = _SEXAGESIMAL.fullmatch(gold), _SEXAGESIMAL.fullmatch(answer)
    if left is None or right is None or not (left[2] or right[2]):
        return None
    values = []
    for match in (left, right):
        minutes = Fraction(match[2] or 0) / 60 + Fraction(match[3] or 0) / 3600
        degrees = Fraction(match[1])
        values.append(degrees - minutes if match[1].startswith("-") else degrees + minutes)
    return values[0] == values[1]


def _words(gold: str, answer: str) -> bool | None:
    """Words are equal as text or not at all: letters never commute."""
    if is_words(gold) or is_words(answer):
        return False
    return None


def _ratio(gold: str, answer: str) -> bool | None:
    if not _COLON.search(gold) and not _COLON.search(answer):
        return None
    shares = _shares(gold)
    return shares is not None and shares == _shares(answer)


def _shares(text: str) -> list[Fraction] | None:
    """A ratio's terms over their sum: `4:6`, `4 to 6` and `2/3` are [2/5, 3/5]. None when a term is no number."""
    fraction = re.fullmatch(r"\\frac\{(.+)\}\{(.+)\}", text)
    terms = fraction.groups() if fraction else re.split(rf"{_COLON.pattern}|/", text)
    values = [number.value for number in map(read_number, terms) if number is not None]
    total = sum(values, Fraction(0))
    return [value / total for value in values] if 1 < len(terms) == len(values) and total != 0 else None


def _quantities(gold: str, answer: str) -> bool | None:
    """Values with units: a unit on one side only is left out; two known units are converted; two unknown ones are ignored."""
    if gold.count(r"\text{") > 1 or answer.count(r"\text{") > 1:
        totals = compound(gold), compound(answer)
        if None not in totals:
            return totals[0] == totals[1]
    left, right = split_unit(gold), split_unit(answer)
    if not left.unit and not right.unit:
        return None
    if left.unit and right.unit:
        if left.dimension and right.dimension:
            if left.dimension != right.dimension:
                return False
            if left.factor != right.factor:
                return _converted(left, right)
        elif left.dimension or right.dimension:
            return False
    return leaves_equal(left.value, right.value)


def _converted(left: Quantity, right: Quantity) -> bool | None:
    values = [read_number(quantity.value) for quantity in (left, right)]
    if values[0] is None or values[1] is None:
        return False
    return values[0].value * left.factor == values[1].value * right.factor


def comparable(gold: str, answer: str) -> bool:
    """Whether two normalized expressions may be equal: both are readable and of a sane size, and they use the same letters."""
    if any(len(text) > _LONGEST_EXPRESSION or _DROPPED.search(text) or _is_endless(text) for text in (gold, answer)):
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
    found = {name for name in _SYMBOL.findall(text) if not name.startswith("\\") or _GREEK.fullmatch(name)}
    bound = {"e", "i", *_INDEX.findall(text)}
    if DIFFERENTIAL.search(text):
        bound |= {"d", *_DEFINITE.findall(text)}
    return found - bound


def _is_endless(text: str) -> bool:
    """Whether a text holds a sum, product or power of a number that no computer writes out."""
    exponents = [read_number(exponent) for exponent in _NUMERIC_POWER.findall(text)]
    towers = (number is not None and (number.huge or abs(number.value) > _LARGEST_EXPONENT) for number in exponents)
    return _LONG_RANGE.search(text) is not None or any(towers)
