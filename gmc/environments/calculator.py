"""Arithmetic for the model: an expression is read as Python reads it, and only numbers and a few operations are allowed.

Nothing is ever evaluated by Python itself, numbers are exact fractions as long as they can be, and sizes are bounded, so no
expression takes long.
"""

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction

LONGEST = 200
LARGEST_BITS = 2000
DIGITS = 12

Number = int | Fraction | float


class CalculationError(Exception):
    """Why there is no result, in a few words that the model is told."""


def calculate(expression: str) -> str:
    """The value of an arithmetic expression as text: an integer, or a decimal of 12 significant digits.

    + − * / // % ** and brackets, ^ as a power, sqrt, abs, min, max and round. Raises `CalculationError` for anything else.
    """
    text = expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-")
    if len(text) > LONGEST:
        raise CalculationError(f"more than {LONGEST} characters")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CalculationError("not an arithmetic expression") from error
    try:
        return _text(_value(tree))
    except ZeroDivisionError as error:
        raise CalculationError("division by zero") from error
    except OverflowError as error:
        raise CalculationError("too large") from error


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            return _bounded(Fraction(str(value)) if isinstance(value, float) and math.isfinite(value) else value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _bounded(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _bounded(_OPERATIONS[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and arguments:
            return _bounded(_call(name, [_value(argument) for argument in arguments]))
    raise CalculationError("not an arithmetic expression")


def _divide(one: Number, other: Number) -> Number:
    return one / other if isinstance(one, float) or isinstance(other, float) else Fraction(one) / Fraction(other)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        exponent = int(exponent)
    if isinstance(exponent, int) and not isinstance(base, float):
        if abs(exponent) * max(_bits(base), 1) > LARGEST_BITS:
            raise CalculationError("too large")
        power: Number = Fraction(base) ** exponent
        return power
    if base < 0:
        raise CalculationError("a root of a negative number")
    return math.pow(base, exponent)


def _sqrt(number: Number) -> Number:
    if number < 0:
        raise CalculationError("a root of a negative number")
    if not isinstance(number, float):
        parts = (Fraction(number).numerator, Fraction(number).denominator)
        roots = [math.isqrt(part) for part in parts]
        if all(root * root == part for root, part in zip(roots, parts, strict=True)):
            return Fraction(*roots)
    return math.sqrt(number)


def _call(name: str, arguments: list[Number]) -> Number:
    try:
        return _FUNCTIONS[name](*arguments)
    except TypeError as error:
        raise CalculationError(f"{name} takes other arguments") from error


_OPERATIONS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "abs": abs,
    "min": lambda *numbers: min(numbers),
    "max": lambda *numbers: max(numbers),
    "round": lambda number: round(number),
}


def _bits(number: int | Fraction) -> int:
    return max(int(number.numerator).bit_length(), int(number.denominator).bit_length())


def _bounded(number: Number) -> Number:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise CalculationError("too large")
    elif _bits(number) > LARGEST_BITS:
        raise CalculationError("too large")
    return number


def _text(number: Number) -> str:
    if not isinstance(number, float) and Fraction(number).denominator == 1:
        return str(int(number))
    return f"{float(number):.{DIGITS}g}"
