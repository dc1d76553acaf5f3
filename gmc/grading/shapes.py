"""The shapes an answer can have: one value, several values, a tuple, a set, intervals, a relation, a matrix, words."""

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
