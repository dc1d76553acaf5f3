r"""Numbers as answers spell them, compared exactly.

Read are integers, decimals, `\frac`, `\binom`, `+ - \cdot /`, integer powers, roots that come out exactly, factorials,
parentheses, mixed numbers (`2\frac{1}{2}`, `3 1/4`) and scientific notation. The text is spelled as a Python expression,
Python's parser reads it, and only its syntax tree is evaluated. Results are limited in size, so that a tower of powers costs
nothing.

Conventions (also in docs/grading.md):
- `12,345` and `1 234 567` are grouped numbers; `12,34` is a list; `352,364,452` (three groups, the first of three digits, none
  with a leading zero) is a list.
- A percent sign on either side: `35%` equals 35%, 35 and 0.35; a bare 35 never equals 0.35.
- A decimal equals a fraction when it equals it exactly, or when the gold is a non-terminating fraction and the answer is that
  fraction correctly rounded to at least four decimals.
- A gold in scientific notation is a measured value: an answer agrees when it equals the gold rounded to the shorter of the two
  mantissas, which must have three digits at least.
"""

import ast
import math
import operator
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d+|\.\d+)")
_SCIENTIFIC = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<mantissa>\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<e>[-+]?\d+)| ?\\cdot ?10\^\{?(?P<power>-?\d+)\}?))"
)
_ROUNDED_DECIMALS = 4
_MEASURED_DIGITS = 3
_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_TOO_LONG = re.compile(r"\d{4001}")
"""Python refuses to read an integer of more than 4300 digits."""
_NUMERAL = r"\d*\.\d*\\overline\{\d+\}|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<numeral>{_NUMERAL})|\\[a-zA-Z]+|[-+/^!(){{}}\[\]]| ")
_SPACED_MIXED = re.compile(r"(?<![^-+({\[])(\d+) (\d+)/(\d+)")
_PYTHON = {
    r"\frac": "frac", r"\binom": "binom", r"\sqrt": "sqrt", r"\cdot": "*", "^": "**", "{": "(", "}": ")", "!": ".factorial",
} | {token: token for token in ("+", "-", "/", "(", ")", "[", "]")}  # fmt: skip
_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_MAX_BITS = 60_000
_MAX_DEPTH = 60
_MAX_FACTORIAL = 5_000


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
        return _same(_hundredth(gold), answer)
    if answer.percent and not gold.percent:
        return _same(gold, _hundredth(answer))
    return False


def _hundredth(number: Number) -> Number:
    return Number(number.value / 100, digits=number.digits)


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


class NotRationalError(ValueError):
    """The text is no arithmetic over the rationals (it has letters, inexact roots, or is malformed)."""


class TooLargeError(ValueError):
    """The value is defined but larger than any answer that can be checked exactly."""


def evaluate(text: str) -> Fraction:
    """The exact value of normalized arithmetic. Raises `NotRationalError` or `TooLargeError`."""
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    if _TOO_LONG.search(text):
        raise TooLargeError
    spelled = _as_python(text)
    try:
        return _value(ast.parse(spelled, mode="eval").body)
    except (SyntaxError, MemoryError) as error:
        # Python's parser gives up on hundreds of open brackets.
        raise (TooLargeError if text.count("(") > _MAX_DEPTH else NotRationalError)("malformed") from error
    except ZeroDivisionError as error:
        raise NotRationalError("division by zero") from error


def _as_python(text: str) -> str:
    r"""A Python expression: `\frac{1}{2}` is `frac('1')('2')`, `5!` is `('5').factorial`, mixed numbers have an `@`."""
    text = _SPACED_MIXED.sub(r"\1\\frac{\2}{\3}", text)
    spelled: list[str] = []
    before = ""
    operand = False
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or not (match["numeral"] or match.group() == " " or match.group() in _PYTHON):
            raise NotRationalError(text[position:])
        position = match.end()
        token = match.group()
        if token == " ":
            continue
        if token == r"\frac" and before.isdigit() and spelled[-2:-1] in ([], ["+"], ["-"], ["("], ["["]):
            spelled.append("@")
        elif operand and (token in ("(", r"\frac", r"\sqrt", r"\binom") or (token == "{" and before != "}")):
            spelled.append("*")
        spelled.append(f"({token!r})" if match["numeral"] else _PYTHON[token])
        before, operand = token, bool(match["numeral"]) or token in (")", "}", "!")
    return " ".join(spelled)


def _value(node: ast.expr, depth: int = 0) -> Fraction:
    """The value of a syntax tree that `_as_python` spelled."""
    if depth > _MAX_DEPTH:
        raise TooLargeError

    def value(part: ast.expr) -> Fraction:
        return _value(part, depth + 1)

    match node:
        case ast.Constant(value=str(numeral)):
            return _numeral(numeral)
        case ast.UnaryOp(op=sign, operand=operand):
            return -value(operand) if isinstance(sign, ast.USub) else value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(value(left), value(right))
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return _mixed(value(left), value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATIONS:
            return _bounded(_OPERATIONS[type(sign)](value(left), value(right)))
        case ast.Attribute(value=operand):
            return _factorial(value(operand))
        case ast.Call(func=ast.Call(func=ast.Name(id="frac"), args=[top]), args=[bottom]):
            return _bounded(value(top) / value(bottom))
        case ast.Call(func=ast.Call(func=ast.Name(id="binom"), args=[top]), args=[bottom]):
            return _binomial(value(top), value(bottom))
        case ast.Call(func=ast.Name(id="sqrt"), args=[radicand]):
            return exact_root(value(radicand), Fraction(2))
        case ast.Call(func=ast.Subscript(value=ast.Name(id="sqrt"), slice=index), args=[radicand]):
            return exact_root(value(radicand), value(index))
    raise NotRationalError("malformed")


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > _MAX_BITS or value.denominator.bit_length() > _MAX_BITS:
        raise TooLargeError
    return value


def _numeral(token: str) -> Fraction:
    r"""A decimal numeral, with an exponent of bounded size, or a repeating decimal, `0.1\overline{6}`."""
    fixed, _, cycle = token.rstrip("}").partition(r"\overline{")
    mantissa, _, exponent = fixed.lower().partition("e")
    if len(token) > 10_000 or len(exponent) > 5 or abs(power := int(exponent or 0)) > 15_000:
        raise TooLargeError
    value = Fraction(f"0{mantissa}0" if "." in mantissa else mantissa) * Fraction(10) ** power
    if cycle:
        value += Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(mantissa.partition(".")[2]))
    return _bounded(value)


def _mixed(whole: Fraction, part: Fraction) -> Fraction:
    if not 0 < part < 1:
        raise NotRationalError("malformed mixed number")
    return whole - part if whole < 0 else whole + part


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise NotRationalError("factorial of a fraction")
    if value > _MAX_FACTORIAL:
        raise TooLargeError
    return Fraction(math.factorial(int(value)))


def _binomial(top: Fraction, bottom: Fraction) -> Fraction:
    if top.denominator != 1 or bottom.denominator != 1 or top < 0 or bottom < 0:
        raise NotRationalError("binomial of a fraction")
    if top > _MAX_FACTORIAL:
        raise TooLargeError
    return Fraction(math.comb(int(top), int(bottom)))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _power(exact_root(base, Fraction(exponent.denominator)), Fraction(exponent.numerator))
    if base in (0, 1, -1) and exponent != 0:
        # Only the sign and the parity of a large exponent matter.
        exponent = (exponent % 2 + 2) * (-1 if exponent < 0 else 1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > _MAX_BITS:
        raise TooLargeError
    return base ** int(exponent)


def exact_root(value: Fraction, index: Fraction) -> Fraction:
    """The real root when it is rational; raises `NotRationalError` when it is not."""
    if index.denominator != 1 or not 1 <= index <= 64 or (value < 0 and index % 2 == 0):
        raise NotRationalError("no real root")
    n = int(index)
    root = Fraction(_integer_root(abs(value.numerator), n), _integer_root(value.denominator, n))
    return -root if value < 0 else root


def _integer_root(value: int, n: int) -> int:
    low, high = 0, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**n <= value:
            low = middle
        else:
            high = middle - 1
    if low**n != value:
        raise NotRationalError("irrational root")
    return low
