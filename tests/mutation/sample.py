"""Which mutants of a file are tried: a sample by a fixed seed over all that cosmic-ray's operators can make."""

import random
from dataclasses import dataclass

import cosmic_ray.plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code

SEED = 20260
LEFT_OUT = ("BitOr", "VariableInserter", "VariableReplacer")
"""`A | B` is mostly a type here, and breaking an annotation stops the import, which any test would notice."""


@dataclass(frozen=True)
class Mutant:
    """The `occurrence`-th place in `file` where `operator` applies. source: the file with that one change."""

    file: str
    operator: str
    occurrence: int
    source: str

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.file} {self.operator.removeprefix('core/')} {self.occurrence}"


def mutants_of(file: str, source: str, count: int) -> list[Mutant]:
    """`count` different mutants of a file, or all of them if there are fewer; the same for the same source and seed."""
    tree = get_ast(source)
    places = []
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if any(word in name for word in LEFT_OUT):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        places += [(name, number) for number in range(_occurrences(tree, operator))]
    random.Random(f"{SEED}/{file}").shuffle(places)
    found: dict[str, Mutant] = {}
    for name, occurrence in places:
        mutated = _mutated(source, name, occurrence)
        if mutated is not None and mutated != source:
            found.setdefault(mutated, Mutant(file, name, occurrence, mutated))
        if len(found) == count:
            break
    return list(found.values())


def _mutated(source: str, name: str, occurrence: int) -> str | None:
    try:
        return mutate_code(source, cosmic_ray.plugins.get_operator(name)(), occurrence)
    except AttributeError:  # ExceptionReplacer counts dotted names, which it cannot replace
        return None


def _occurrences(tree: object, operator: object) -> int:
    count, nodes = 0, [tree]
    while nodes:
        node = nodes.pop()
        count += sum(1 for _ in operator.mutation_positions(node))
        nodes += getattr(node, "children", [])
    return count
