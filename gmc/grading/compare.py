"""Compare two shapes, gold first. Three-valued: None means that a leaf could not be decided by the comparer in use."""

import re
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from gmc.grading.leaves import relations_equal, values_equal
from gmc.grading.normalize import MAX_ANSWER, normalize, text_key
from gmc.grading.shapes import Congruence, Leaf, Matrix, Named, Relation, Sequence, Several, Shape, Union, Words
from gmc.grading.structure import is_name, readings

Leaves = Callable[[str, str], bool | None]
_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_FUNCTION = re.compile(r"([a-zA-Z]'*)\(([a-zA-Z])\)")
_ROUND = {"(", ")"}


class Comparer:
    """Walks two shapes and asks `leaves` about single values.

    leaves(gold, answer): whether two values are equal, None when it cannot tell.
    relations(gold, answer): the same for two equations or inequalities.
    """

    def __init__(self, leaves: Leaves, relations: Leaves) -> None:
        self.leaves = leaves
        self.relations = relations

    def equal(self, gold: Shape, answer: Shape) -> bool | None:
        """Whether the answer is the gold."""
        if isinstance(gold, Several) or isinstance(answer, Several):
            return self._several(gold, answer)
        if isinstance(gold, Union) or isinstance(answer, Union):
            return self._unions(gold, answer)
        if isinstance(gold, Named) or isinstance(answer, Named):
            return self._named(gold, answer)
        if isinstance(gold, Matrix) or isinstance(answer, Matrix):
            return self._matrices(gold, answer)
        if isinstance(gold, Sequence) and isinstance(answer, Sequence):
            return self._sequences(gold, answer)
        if isinstance(gold, Congruence) and isinstance(answer, Congruence):
            return self._congruent(gold, answer)
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return self._relations(gold, answer)
        if isinstance(gold, Leaf | Words) and isinstance(answer, Leaf | Words):
            return self.leaves(gold.text, answer.text)
        return False

    def any_reading(self, golds: Items[Shape], answers: Items[Shape]) -> bool | None:
        """Whether the answer is the gold in any of their readings."""
        verdicts = [self.equal(gold, answer) for gold in golds for answer in answers]
        return True if True in verdicts else None if None in verdicts else False

    def _several(self, gold: Shape, answer: Shape) -> bool | None:
        if isinstance(gold, Several) and isinstance(answer, Several):
            return self._several_both(gold, answer)
        several, other = (gold, answer) if isinstance(gold, Several) else (answer, gold)
        assert isinstance(several, Several)
        if isinstance(other, Sequence) and not several.braced and {other.left, other.right} <= _ROUND:
            values = tuple(item.value if isinstance(item, Named) else item for item in several.items)
            return self._ordered(*((values, other.items) if several is gold else (other.items, values)))
        if len(several.items) == 1:
            only = several.items[0]
            return self.equal(only, answer) if several is gold else self.equal(gold, only)
        if isinstance(other, Named):
            return self.equal(several, other.value) if several is gold else self.equal(other.value, several)
        # One value that the answer gives in several spellings is still one value; any other value among them makes it wrong.
        if several is gold or any(isinstance(item, Named) for item in several.items):
            return False
        return all_of(self.equal(gold, item) for item in several.items)

    def _several_both(self, gold: Several, answer: Several) -> bool | None:
        golds, answers = gold.items, answer.items
        if gold.braced or answer.braced:
            golds, answers = self._distinct(golds), self._distinct(answers)
        if len(golds) != len(answers):
            return False
        names = [[item.name for item in items if isinstance(item, Named)] for items in (golds, answers)]
        if bool(names[0]) != bool(names[1]) and len(set(names[0] or names[1])) > 1:
            # Different names on one side, bare values on the other: the order is all there is.
            return self._ordered(golds, answers)
        return self._unordered(golds, answers)

    def _distinct(self, items: Items[Shape]) -> tuple[Shape, ...]:
        kept: list[Shape] = []
        for item in items:
            if not any(self.equal(other, item) is True for other in kept):
                kept.append(item)
        return tuple(kept)

    def _ordered(self, golds: Items[Shape], answers: Items[Shape]) -> bool | None:
        if len(golds) != len(answers):
            return False
        return all_of(self.equal(gold, answer) for gold, answer in zip(golds, answers, strict=True))

    def _unordered(self, golds: Items[Shape], answers: Items[Shape]) -> bool | None:
        """Pair every gold with an answer of its own. Equality is an equivalence, so the first match is as good as any."""
        if len(golds) != len(answers):
            return False
        left = list(answers)
        undecided: list[Shape] = []
        for gold in golds:
            verdicts = [self.equal(gold, answer) for answer in left]
            if True in verdicts:
                left.pop(verdicts.index(True))
            elif None in verdicts:
                undecided.append(gold)
            else:
                return False
        return None if undecided else True

    def _sequences(self, gold: Sequence, answer: Sequence) -> bool | None:
        if len(gold.items) != len(answer.items):
            return False
        if len(gold.items) == 2 and (gold.left, gold.right) != (answer.left, answer.right):
            return False
        return self._ordered(gold.items, answer.items)

    def _unions(self, gold: Shape, answer: Shape) -> bool | None:
        if isinstance(gold, Named) and isinstance(answer, Union):
            return self.equal(gold.value, answer)
        if isinstance(answer, Named) and isinstance(gold, Union):
            return self.equal(gold, answer.value)
        sides = [shape if isinstance(shape, Union) else Union((shape,)) for shape in (gold, answer)]
        if sides[0].variable and sides[1].variable and sides[0].variable != sides[1].variable:
            return False
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return False
        return self._unordered(sides[0].parts, sides[1].parts)

    def _named(self, gold: Shape, answer: Shape) -> bool | None:
        if isinstance(gold, Named) and isinstance(answer, Named):
            if gold.name == answer.name:
                return self.equal(gold.value, answer.value)
            # `y = 2x` and `f(x) = 2x` name the same function.
            others = {name for name in (gold.name, answer.name) if not _is_function(name)}
            if others == {"y"}:
                return self.equal(gold.value, answer.value)
            renamed = _rename_argument(gold.name, answer)
            if renamed is not None:
                return self.equal(gold.value, renamed)
            return self._equations(gold, answer)
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return self._equations(gold, answer)
        if isinstance(gold, Named):
            # `x+y=3` is an equation, and 3 alone does not say it; as an answer to 3 it only names the value.
            return False if "+" in gold.name else self.equal(gold.value, answer)
        return self.equal(gold, answer.value) if isinstance(answer, Named) else False

    def _equations(self, gold: Shape, answer: Shape) -> bool | None:
        texts = [_equation_text(shape) for shape in (gold, answer)]
        if texts[0] is None or texts[1] is None:
            return False
        return self.relations(texts[0], texts[1])

    def _matrices(self, gold: Shape, answer: Shape) -> bool | None:
        rows = [_rows(shape) for shape in (gold, answer)]
        if rows[0] is None or rows[1] is None or [len(row) for row in rows[0]] != [len(row) for row in rows[1]]:
            return False
        return all_of(self._ordered(one, other) for one, other in zip(rows[0], rows[1], strict=True))

    def _congruent(self, gold: Congruence, answer: Congruence) -> bool | None:
        if gold.name and answer.name and gold.name != answer.name:
            return False
        modulus = self.leaves(gold.modulus, answer.modulus)
        if modulus is not True:
            return modulus
        if all(_INTEGER.fullmatch(text) for text in (gold.modulus, gold.residue, answer.residue)) and int(gold.modulus):
            return (int(gold.residue) - int(answer.residue)) % int(gold.modulus) == 0
        return self.leaves(gold.residue, answer.residue)

    def _relations(self, gold: Shape, answer: Shape) -> bool | None:
        if isinstance(gold, Relation) and isinstance(answer, Relation):
            if gold.operators == answer.operators and len(gold.sides) == len(answer.sides):
                same = all_of(self.leaves(one, other) for one, other in zip(gold.sides, answer.sides, strict=True))
                if same is True or len(gold.operators) > 1:
                    return same
            return self._equations(gold, answer)
        relation, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
        assert isinstance(relation, Relation)
        if set(relation.operators) - {"=", r"\approx"} or not isinstance(other, Leaf | Words):
            return False
        return self._chain(relation, other.text, relation is gold)

    def _chain(self, relation: Relation, value: str, is_gold: bool) -> bool | None:
        """A chain of equalities against a value: its last side is the value, and every side but names must be equal to it."""
        *earlier, last = relation.sides
        final = self.leaves(last, value) if is_gold else self.leaves(value, last)
        if final is not True:
            return final
        return all_of(self.leaves(last, side) for side in earlier if not is_name(side))


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """False when any is False, else None when any is undecided, else True."""
    undecided = False
    for verdict in verdicts:
        if verdict is False:
            return False
        undecided = undecided or verdict is None
    return None if undecided else True


def _is_function(name: str) -> bool:
    return name.endswith(")") and "(" in name


def _rename_argument(name: str, answer: Named) -> Leaf | None:
    """The value of `f(t)=...` written in the gold's letter; None when the two do not define one function of one letter."""
    left, right = _FUNCTION.fullmatch(name), _FUNCTION.fullmatch(answer.name)
    if left is None or right is None or left[1] != right[1] or not isinstance(answer.value, Leaf):
        return None
    if left[2] in re.sub(r"\\[a-zA-Z]+", "", answer.value.text):
        return None
    return Leaf(re.sub(rf"(\\[a-zA-Z]+ ?)|{right[2]}", lambda match: match[1] or left[2], answer.value.text))


def _rows(shape: Shape) -> tuple[tuple[Shape, ...], ...] | None:
    """A matrix's rows; a tuple is a column vector."""
    if isinstance(shape, Matrix):
        return shape.rows
    if isinstance(shape, Sequence) and {shape.left, shape.right} <= _ROUND:
        return tuple((item,) for item in shape.items)
    return None


def _equation_text(shape: Shape) -> str | None:
    if isinstance(shape, Named) and isinstance(shape.value, Leaf):
        return f"{shape.name}={shape.value.text}"
    if isinstance(shape, Relation) and len(shape.sides) == 2:
        return f"{shape.sides[0]}{shape.operators[0]} {shape.sides[1]}"
    return None


def judge_tiers(gold: str, answer: str) -> tuple[bool | None, str]:
    """(correct, tier) without a computer algebra system; correct is None when only the symbolic tier can tell."""
    left, right = normalize(gold), normalize(answer)
    if text_key(left) == text_key(right):
        return True, "text"
    if len(answer) > MAX_ANSWER:
        return False, "text"
    verdict = Comparer(values_equal, relations_equal).any_reading(readings(left), readings(right))
    return verdict, "symbolic" if verdict is None else "number"
