r"""Exact value of a LaTeX arithmetic expression over the rationals, or the reason why it has none.

A small recursive-descent evaluator: integers, decimals, `\frac`, `\binom`, `+ - \cdot /`, integer powers, roots that come out
exactly, factorials, parentheses, mixed numbers (`2\frac{1}{2}`, `3 1/4`), scientific notation. Results are limited in size,
so that a tower of powers costs nothing.
"""

import math
import re
from fractions import Fraction

_TOKEN = re.compile(r"\d*\.\d*\\overline\{\d+\}|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|\\[a-zA-Z]+|[-+/^!(){}\[\]]| ")
_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_TOO_LONG = re.compile(r"\d{4001}")
"""Python refuses to read an integer of more than 4300 digits."""
_MAX_BITS = 60_000
_MAX_DEPTH = 60
_MAX_FACTORIAL = 5_000


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
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotRationalError(text[position])
        tokens.append(match.group())
        position = match.end()
    parser = _Parser(tokens)
    value = parser.sum()
    parser.space()
    if parser.peek() is not None:
        raise NotRationalError("trailing text")
    return value


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > _MAX_BITS or value.denominator.bit_length() > _MAX_BITS:
        raise TooLargeError
    return value


def number(token: str) -> Fraction:
    """A decimal numeral, with an exponent of bounded size."""
    if r"\overline" in token:
        return _repeating(token)
    mantissa, _, exponent = token.lower().partition("e")
    if len(token) > 10_000 or len(exponent) > 5:
        raise TooLargeError
    power = int(exponent or 0)
    if abs(power) > 15_000:
        raise TooLargeError
    return _bounded(Fraction(mantissa.rstrip(".") if mantissa.endswith(".") else mantissa) * Fraction(10) ** power)


def _repeating(token: str) -> Fraction:
    r"""A repeating decimal, `0.1\overline{6}`."""
    fixed, _, cycle = token.rstrip("}").partition(r"\overline{")
    whole, _, digits = fixed.partition(".")
    if len(token) > 200:
        raise TooLargeError
    tail = Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(digits))
    return Fraction(f"{whole or 0}.{digits or 0}") + tail


class _Parser:
    """State of one evaluation: the tokens and how far they are read."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise NotRationalError("ends early")
        self.at += 1
        return token

    def space(self) -> None:
        while self.peek() == " ":
            self.at += 1

    def expect(self, token: str) -> None:
        self.space()
        if self.take() != token:
            raise NotRationalError(f"expected {token}")

    def sum(self) -> Fraction:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise TooLargeError
        value = self.product()
        while True:
            self.space()
            if self.peek() == "+":
                self.take()
                value = _bounded(value + self.product())
            elif self.peek() == "-":
                self.take()
                value = _bounded(value - self.product())
            else:
                self.depth -= 1
                return value

    def product(self) -> Fraction:
        self.space()
        sign = 1
        while self.peek() in ("-", "+"):
            sign = -sign if self.take() == "-" else sign
            self.space()
        value = self.mixed()
        while True:
            self.space()
            token = self.peek()
            if token == r"\cdot":
                self.take()
                value = _bounded(value * self.signed())
            elif token == "/":
                self.take()
                divisor = self.signed()
                if divisor == 0:
                    raise NotRationalError("division by zero")
                value = _bounded(value / divisor)
            elif token is not None and (token in ("(", "{") or token in (r"\frac", r"\sqrt", r"\binom")):
                value = _bounded(value * self.power())
            else:
                return sign * value

    def signed(self) -> Fraction:
        self.space()
        sign = 1
        while self.peek() in ("-", "+"):
            sign = -sign if self.take() == "-" else sign
            self.space()
        return sign * self.power()

    def mixed(self) -> Fraction:
        r"""A factor, or a mixed number: an integer directly before a proper fraction, `2\frac{1}{2}` or `3 1/4`."""
        start = self.at
        whole = self.peek()
        if whole is not None and whole.isdigit():
            self.at += 1
            self.space()
            following = self.tokens[self.at : self.at + 3]
            spaced = self.at > start + 1
            if following[:1] == [r"\frac"]:
                part = self.power()
                if not 0 < part < 1:
                    raise NotRationalError("malformed mixed number")
                return int(whole) + part
            if spaced and len(following) == 3 and following[0].isdigit() and following[1] == "/" and following[2].isdigit():
                self.at += 3
                top, bottom = int(following[0]), int(following[2])
                if not 0 < top < bottom:
                    raise NotRationalError("malformed mixed number")
                return int(whole) + Fraction(top, bottom)
            if spaced and following and following[0][:1].isdigit():
                raise NotRationalError("two numbers side by side")
            self.at = start
        return self.power()

    def power(self) -> Fraction:
        base = self.atom()
        while self.peek() == "!":
            self.take()
            base = _factorial(base)
        if self.peek() != "^":
            return base
        self.take()
        self.space()
        sign = -1 if self.peek() == "-" else 1
        if sign < 0:
            self.take()
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise TooLargeError
        exponent = sign * self.power()
        self.depth -= 1
        return _power(base, exponent)

    def atom(self) -> Fraction:
        self.space()
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return number(token)
        if token == "(" or token == "{":
            value = self.sum()
            self.expect(")" if token == "(" else "}")
            return value
        if token == r"\frac" or token == r"\binom":
            top, bottom = self.argument(), self.argument()
            if token == r"\binom":
                return _binomial(top, bottom)
            if bottom == 0:
                raise NotRationalError("division by zero")
            return _bounded(top / bottom)
        if token == r"\sqrt":
            index = Fraction(2)
            if self.peek() == "[":
                self.take()
                index = self.sum()
                self.expect("]")
            return exact_root(self.argument(), index)
        raise NotRationalError(token)

    def argument(self) -> Fraction:
        self.expect("{")
        value = self.sum()
        self.expect("}")
        return value


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
    if base == 0 and exponent < 0:
        raise NotRationalError("division by zero")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if base not in (0, 1, -1) and abs(exponent) * bits > _MAX_BITS:
        raise TooLargeError
    if base in (0, 1, -1):
        exponent = Fraction(int(exponent) % 2 + 2) if exponent != 0 else exponent
    return base ** int(exponent)


def exact_root(value: Fraction, index: Fraction) -> Fraction:
    """The real root when it is rational; raises `NotRationalError` when it is not."""
    if index.denominator != 1 or not 1 <= index <= 64:
        raise NotRationalError("root index")
    n = int(index)
    negative = value < 0
    if negative and n % 2 == 0:
        raise NotRationalError("even root of a negative number")
    parts = [_integer_root(part, n) for part in (abs(value.numerator), value.denominator)]
    return Fraction(-parts[0] if negative else parts[0], parts[1])


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
