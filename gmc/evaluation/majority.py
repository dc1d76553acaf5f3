"""When two extracted answers are one vote."""

from gmc.grading.normalize import normalize, text_key
from gmc.grading.numbers import read_number


def answer_key(prediction: str | None) -> str | None:
    """A text that equal answers share: rational numbers by value, anything else by its normalized spelling; None stays None.

    Right and wrong answers are treated alike: no vote is merged because a symbolic check found two answers equal.
    """
    if prediction is None:
        return None
    normalized = normalize(prediction)
    number = read_number(normalized)
    if number is None or number.huge:
        return text_key(normalized)
    return f"{number.value}{'%' if number.percent else ''}"
