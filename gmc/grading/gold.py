"""Why a gold answer cannot be graded."""

import re
from functools import lru_cache

from gmc.grading.boxes import find_boxes
from gmc.grading.normalize import MAX_ANSWER, normalize
from gmc.grading.splitting import balanced

_MISSING = re.compile(r"nan|none|null|n/a|\[\]|\{\}|\?+|\.+|-+", re.IGNORECASE)
_PYTHON_LIST = re.compile(r"\[\s*(['\"]).*\1\s*\]", re.DOTALL)
_MAX_WORDS = 25


@lru_cache(maxsize=8192)
def gold_problem(gold: str) -> str | None:
    """Why this gold answer cannot be graded, in a few words; None when it can.

    Words are fine golds and are compared as text. A gold that is empty, a placeholder, a worked solution, or whose brackets do
    not close is refused: no answer to it may ever earn a reward.
    """
    if not gold.strip():
        return "the answer is empty"
    if len(gold) > MAX_ANSWER:
        return f"the answer is longer than {MAX_ANSWER} characters; a worked solution is no answer"
    if find_boxes(gold):
        return r"the answer holds a \boxed{...}; give only what stands in the box"
    if _PYTHON_LIST.fullmatch(gold.strip()):
        return "the answer is a list written as text; give the value in it"
    text = normalize(gold)
    if not text:
        return "nothing is left of the answer without its delimiters"
    if _MISSING.fullmatch(gold.strip()):
        return f"{gold.strip()!r} stands for a missing answer"
    if not balanced(text):
        return "its brackets or braces do not close"
    if len(re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[a-zA-Z]+", " ", text))) > _MAX_WORDS:
        return f"the answer has more than {_MAX_WORDS} words; a worked solution is no answer"
    return None
