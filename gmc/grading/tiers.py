"""The tiers that need no computer algebra: normalized text, then exact numbers and shapes."""

from gmc.grading.compare import Comparer
from gmc.grading.guards import same_symbols, unreadable
from gmc.grading.leaves import leaves_equal
from gmc.grading.normalize import MAX_ANSWER, normalize, text_key
from gmc.grading.structure import readings


def settle(gold: str, answer: str) -> tuple[bool | None, str]:
    """(correct, tier) without a computer algebra system; correct is None when only the symbolic tier can tell."""
    left, right = normalize(gold), normalize(answer)
    if text_key(left) == text_key(right):
        return True, "text"
    if len(answer) > MAX_ANSWER:
        return False, "text"
    verdict = Comparer(compare_values, compare_relations).any_reading(readings(left), readings(right))
    return verdict, "symbolic" if verdict is None else "number"


def compare_values(gold: str, answer: str) -> bool | None:
    """Two values: True, False, or None when only the symbolic tier can tell."""
    verdict = leaves_equal(gold, answer)
    return compare_relations(gold, answer) if verdict is None else verdict


def compare_relations(gold: str, answer: str) -> bool | None:
    """False when a guard rules equality out, else None: the symbolic tier has to tell."""
    return None if same_symbols(gold, answer) and not unreadable(gold) and not unreadable(answer) else False
