r"""The shapes an answer can have; `kind` and `str` put one in words: `set` `{1}`, `interval` `(0, 1]`, `equation` `x = 5`."""

import re
from dataclasses import dataclass
from typing import TypeAlias

_WRAPPED = re.compile(r"\\text\{([^{}]*)\}")
_SIGNS = {r"\le": "≤", r"\ge": "≥", r"\ne": "≠", r"\approx": "≈"}


@dataclass(frozen=True)
class Leaf:
    """One value or expression, in normalized LaTeX."""

    text: str
    kind = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Words:
    """A text answer, compared as text only."""

    text: str
    kind = "words"

    def __str__(self) -> str:
        return _WRAPPED.sub(r"\1", self.text)


@dataclass(frozen=True)
class Several:
    """Values joined by commas, "and" or "or": order does not matter. braced: a set, so repeats do not count."""

    items: tuple["Shape", ...]
    braced: bool = False

    @property
    def kind(self) -> str:
        return "set" if self.braced else "values in any order:"

    def __str__(self) -> str:
        return f"{{{_listed(self.items)}}}" if self.braced else _listed(self.items)


@dataclass(frozen=True)
class Sequence:
    """Values in brackets, in order: a tuple, point, vector, or (two values, or a square bracket) an interval."""

    left: str
    items: tuple["Shape", ...]
    right: str

    @property
    def kind(self) -> str:
        if self.left + self.right == "()":
            return "tuple"
        return "interval" if len(self.items) == 2 else "list"

    def __str__(self) -> str:
        return f"{self.left}{_listed(self.items)}{self.right}"


@dataclass(frozen=True)
class Union:
    r"""Parts joined by `\\cup`; order does not matter. Inequalities become unions of intervals."""

    parts: tuple["Shape", ...]
    variable: str = ""

    @property
    def kind(self) -> str:
        return "interval" if len(self.parts) == 1 else "union"

    def __str__(self) -> str:
        return " ∪ ".join(map(str, self.parts)) + (f" of {self.variable}" if self.variable else "")


@dataclass(frozen=True)
class Named:
    """A name and its value: `x=5`, `f(x)=2x`, `|AB|=6`."""

    name: str
    value: "Shape"
    kind = "equation"

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Relation:
    r"""A chain of sides and relations that is not a plain assignment; `>` and `\\ge` are turned round, so all point upwards."""

    sides: tuple[str, ...]
    operators: tuple[str, ...]
    kind = "relation"

    def __str__(self) -> str:
        signs = [_SIGNS.get(operator, operator) for operator in self.operators]
        return self.sides[0] + "".join(f" {sign} {side}" for sign, side in zip(signs, self.sides[1:], strict=True))


@dataclass(frozen=True)
class Congruence:
    """`name` is congruent to `residue` modulo `modulus`."""

    name: str
    residue: str
    modulus: str
    kind = "congruence"

    def __str__(self) -> str:
        return f"{self.name} ≡ {self.residue} (mod {self.modulus})".lstrip()


@dataclass(frozen=True)
class Matrix:
    """Rows of cells."""

    rows: tuple[tuple["Shape", ...], ...]
    kind = "matrix"

    def __str__(self) -> str:
        return f"[{'; '.join(map(_listed, self.rows))}]"


Shape: TypeAlias = Leaf | Words | Several | Sequence | Union | Named | Relation | Congruence | Matrix


def _listed(items: tuple[Shape, ...]) -> str:
    return ", ".join(map(str, items))
