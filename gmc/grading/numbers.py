r"""Numbers as answers spell them, compared exactly.

Conventions (also in docs/grading.md):
- `12,345` and `1 234 567` are grouped numbers; `12,34` is a list; `352,364,452` (three groups, the first of three digits, none
  with a leading zero) is a list.
- A percent sign on either side: `35%` equals 35%, 35 and 0.35; a bare 35 never equals 0.35.
- A decimal equals a fraction when it equals it exactly, or when the gold is a non-terminating fraction and the answer is that
  fraction correctly rounded to at least four decimals.
- A gold in scientific notation is a measured value: an answer agrees when it equals the gold rounded to the shorter of the two
  mantissas, which must have three digits at least.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from gmc.grading.rational import NotRationalError, TooLargeError, evaluate

_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d+|\.\d+)")
_SCIENTIFIC = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<mantissa>\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<e>[-+]?\d+)| ?\\cdot ?10\^\{?(?P<power>-?\d+)\}?))"
)
_ROUNDED_DECIMALS = 4
_MEASURED_DIGITS = 3


@dataclass(frozen=True)
class Number:
    """An exact value.

    decimals: digits after the point of a plain decimal; digits: significant digits of a mantissa in scientific notation; both
    None otherwise. huge: the value exceeds every limit and equals nothing but its own spelling.
    """

    value: Fraction
    percent: bool = False
    decimals: int | None = None
    digits: int | None = None
    huge: bool = False


def ungroup(text: str) -> str:
    """Drop thousands separators of a grouped number; anything else comes back unchanged."""
    sign_and_digits = text[:-1] if text.endswith("%") else text
    if not _GROUPED.fullmatch(sign_and_digits) or is_ambiguous_list(sign_and_digits):
        return text
    return text.replace(",", "").replace(" ", "")


def is_ambiguous_list(text: str) -> bool:
    """Whether three-digit groups read as a list of values: `352,364,452`."""
    groups = text.split(",")
    return len(groups) >= 3 and len(groups[0]) == 3 and all(re.fullmatch(r"[1-9]\d\d", group) for group in groups)


@lru_cache(maxsize=8192)
def read_number(text: str) -> Number | None:
    """The exact number that a normalized answer spells, None when it spells no rational number."""
    percent = text.endswith("%")
    body = ungroup(text[:-1] if percent else text).strip()
    scientific = _SCIENTIFIC.fullmatch(body)
    digits = len(scientific["mantissa"].replace(".", "").lstrip("0")) if scientific else None
    decimals = len(body.partition(".")[2]) if _DECIMAL.fullmatch(body) else None
    try:
        value = evaluate(body)
    except TooLargeError:
        return Number(Fraction(0), percent, None, None, True)
    except NotRationalError:
        return None
    return Number(value, percent, decimals, digits)


def numbers_equal(gold: Number, answer: Number) -> bool:
    """Whether an answer's number is the gold's, by the conventions above."""
    if gold.huge or answer.huge:
        return False
    if _same(gold, answer):
        return True
    if gold.percent and not answer.percent:
        return _same(_replace(gold, gold.value / 100), answer)
    if answer.percent and not gold.percent:
        return _same(gold, _replace(answer, answer.value / 100))
    return False


def _replace(number: Number, value: Fraction) -> Number:
    return Number(value, False, None, number.digits)


def _same(gold: Number, answer: Number) -> bool:
    if gold.value == answer.value:
        return True
    if gold.digits is not None and gold.value != 0 and answer.value != 0:
        return _measured_equal(gold, answer)
    terminating = _terminates(gold.value)
    if answer.decimals is not None and answer.decimals >= _ROUNDED_DECIMALS and not terminating:
        return bool(abs(gold.value - answer.value) * 2 * 10**answer.decimals <= 1)
    return False


def _measured_equal(gold: Number, answer: Number) -> bool:
    """Both rounded to the shorter mantissa; the answer's own precision counts when it is in scientific notation."""
    assert gold.digits is not None
    shorter = min(gold.digits, answer.digits or gold.digits)
    if shorter < _MEASURED_DIGITS:
        return False
    return _round_to(gold.value, shorter) == _round_to(answer.value, shorter)


def _round_to(value: Fraction, digits: int) -> str:
    """Scientific notation with that many significant digits."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.{digits - 1}e}"


def _terminates(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
