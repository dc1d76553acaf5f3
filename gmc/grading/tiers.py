"""The tiers that need no computer algebra: normalized text, then exact numbers and shapes."""

from gmc.grading.compare import Comparer
from gmc.grading.leaves import leaves_equal
from gmc.grading.normalize import MAX_ANSWER, normalize, text_key
from gmc.grading.structure import read


def settle(gold: str, answer: str) -> tuple[bool | None, str]:
    """(correct, tier) without a computer algebra system; correct is None when only the symbolic tier can tell."""
    left, right = normalize(gold), normalize(answer)
    if text_key(left) == text_key(right):
        return True, "text"
    if len(answer) > MAX_ANSWER:
        return False, "text"
    shapes = read(left), read(right)
    verdict = Comparer(leaves_equal, lambda one, other: None).equal(*shapes)
    return verdict, "symbolic" if verdict is None else "number"
