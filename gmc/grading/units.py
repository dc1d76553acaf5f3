r"""Units behind a value: which are a word to leave out, which change the value, which are a symbol of the answer.

Only words count as units: `\text{...}`, `\mathrm{...}`, a currency or degree sign, or a bare word of two letters or more that
names a unit. A single bare letter (`7c`, `6h`, `2s`) is a symbol and stays part of the value.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from gmc.grading.numbers import read_number

_INCH, _FOOT, _YARD = (Fraction(254, 10_000), Fraction(3048, 10_000), Fraction(9144, 10_000))
# Dimension, then unit and exact factor to that dimension's base unit.
_UNITS: dict[str, dict[str, Fraction | int]] = {
    "length": {
        "m": 1, "km": 1000, "cm": Fraction(1, 100), "mm": Fraction(1, 1000), "dm": Fraction(1, 10), "meter": 1, "metre": 1,
        "kilometer": 1000, "kilometre": 1000, "centimeter": Fraction(1, 100), "centimetre": Fraction(1, 100),
        "millimeter": Fraction(1, 1000), "in": _INCH, "inch": _INCH, "inche": _INCH, "ft": _FOOT, "foot": _FOOT, "feet": _FOOT,
        "yd": _YARD, "yard": _YARD, "mi": 5280 * _FOOT, "mile": 5280 * _FOOT,
    },
    "mass": {"g": 1, "kg": 1000, "mg": Fraction(1, 1000), "gram": 1, "kilogram": 1000},
    "time": {
        "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86_400,
        "week": 604_800,
    },
    "volume": {"l": 1, "liter": 1, "litre": 1, "ml": Fraction(1, 1000), "milliliter": Fraction(1, 1000)},
    "money": {"dollar": 100, "buck": 100, "usd": 100, "cent": 1, "penny": 1, "pennie": 1},
    "angle": {"degree": 1, "deg": 1},
}  # fmt: skip
_TABLE = {unit: (dimension, Fraction(factor)) for dimension, units in _UNITS.items() for unit, factor in units.items()}
_SPEEDS = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h"}
_WORD = r"\\text\{[^{}]*\}"
_POWER = r"(?:\^(?:\{-?\d\}|\d))?"
_JOIN = r"(?: ?(?:/|\\cdot) ?| )?"
_TEXT_UNIT = rf"{_WORD}{_POWER}(?:{_JOIN}(?:\{{)?{_WORD}(?:\}})?{_POWER})*"
_BARE = (
    r"(?:mm|cm|km|kg|mg|ml|mL|ft|yd|mi|hrs?|mins?|secs?|mph|kph|lbs?|oz|rad|m/s|km/h|sq\.?|[A-Za-z]{3,}(?=[ ^/]|$))"
    rf"{_POWER}(?:(?: ?/ ?| )[A-Za-z]+\.?{_POWER})*"
)
_VALUE = r"(?P<value>(?:[^\\]|\\(?!text(?![a-zA-Z])))*?(?:[\d)}\]!%]|[a-zA-Z]))"
_TAIL = re.compile(rf"{_VALUE} ?(?P<unit>{_TEXT_UNIT})", re.DOTALL)
_BARE_TAIL = re.compile(rf"(?P<value>.*(?:[\d)}}\]!]|\\pi)) ?(?P<unit>{_BARE})", re.DOTALL)
_CJK_TAIL = re.compile(r"(?P<value>[-+\d./,]+)(?P<unit>[^\x00-\x7f]+)")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_PART = re.compile(
    rf"(?P<value>-?\d+(?:\.\d+)?|-?\\frac\{{\d+\}}\{{\d+\}}) ?(?P<unit>{_WORD}|[A-Za-z]+)[ ,]*(?:\\text\{{and\}})? ?"
)


@dataclass(frozen=True)
class Quantity:
    """A value's text, its unit as written ("" when there is none), its dimension and the factor to the base unit."""

    value: str
    unit: str
    dimension: str | None = None
    factor: Fraction = Fraction(1)


def split_unit(text: str) -> Quantity:
    """Take the unit off a normalized value; a text without a unit comes back whole."""
    if text.endswith(r"^\circ") and len(text) > 6 and not _TRIGONOMETRY.search(text):
        return Quantity(text[:-6].strip(), "degree", "angle", Fraction(1))
    if re.search(r"\\circ ?(?:C|F|\\text\{[CF]\})$", text):
        head = re.sub(r"\^?\\circ ?(?:C|F|\\text\{[CF]\})$", "", text)
        return Quantity(head.strip(), "temperature")
    for pattern in (_TAIL, _BARE_TAIL, _CJK_TAIL):
        match = pattern.fullmatch(text)
        if match:
            quantity = _quantity(match["value"].strip(), match["unit"])
            # Letters glued to a value are a product (`2abc`) unless they name a unit.
            if pattern is not _BARE_TAIL or quantity.dimension or f" {match['unit']}" in text:
                return quantity
    return Quantity(text, "")


def compound(text: str) -> tuple[str, Fraction] | None:
    """Several values with units of one dimension, added up: `3 h 20 min` is ("time", 12000)."""
    total, dimensions, position = Fraction(0), set(), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        quantity = _quantity(part["value"], part["unit"])
        value = read_number(quantity.value)
        if value is None or quantity.dimension is None:
            return None
        dimensions.add(quantity.dimension)
        total += value.value * quantity.factor
        position = part.end()
    return (dimensions.pop(), total) if len(dimensions) == 1 else None


def _quantity(value: str, unit: str) -> Quantity:
    spelled = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", unit).replace(r"\cdot", " ").lower()
    spelled = re.sub(r"[{}.\\]", "", spelled).strip()
    spelled = re.sub(r"\bper\b", "/", spelled)
    spelled = re.sub(r"\s*([/^])\s*", r"\1", " ".join(spelled.split()))
    power = 1
    for word, exponent in (("square ", 2), ("sq ", 2), ("cubic ", 3), ("cu ", 3)):
        if spelled.startswith(word):
            spelled, power = spelled[len(word) :], exponent
    for word, exponent in ((" squared", 2), (" cubed", 3), ("^2", 2), ("^3", 3)):
        if spelled.endswith(word):
            spelled, power = spelled[: -len(word)], exponent
    parts = [part.strip() for part in _SPEEDS.get(spelled, spelled).split("/")]
    known = [_lookup(part) for part in parts]
    if any(entry is None for entry in known) or len(parts) > 2:
        return Quantity(value, spelled)
    entries = [entry for entry in known if entry is not None]
    dimension, factor = entries[0][0], entries[0][1] ** power
    if len(entries) == 2:
        dimension, factor = f"{dimension}/{entries[1][0]}", factor / entries[1][1]
    return Quantity(value, spelled, f"{dimension}{power}", factor)


def _lookup(unit: str) -> tuple[str, Fraction] | None:
    """Table entry of a unit in singular or plural."""
    return _TABLE.get(unit) or (_TABLE.get(unit[:-1]) if unit.endswith("s") else None)
