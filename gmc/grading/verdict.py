"""What a grader says about one response."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["correct", "incorrect", "unparseable", "timeout", "crash"]


@dataclass(frozen=True)
class Verdict:
    """The result of grading one response against one gold answer.

    status: "unparseable" = no answer found in the response; "timeout" = the check exceeded its limit (scored as wrong, and
        counted apart); "crash" = the checking process died (scored as wrong, counted apart).
    prediction: the extracted answer text, None when there is none.
    tier: what decided: "none" (nothing extracted), "text", "number", "symbolic".
    """

    correct: bool
    status: Status
    prediction: str | None
    tier: str
