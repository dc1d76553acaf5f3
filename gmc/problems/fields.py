"""Which field of a row is the question, which the gold answer, and how a gold is read from what stands there.

Names are compared without case, and the first known name with a value wins. Golds stay text as written; only wrappers are taken
off (a list of one value, dollar signs, `\\boxed{}`, everything before GSM8K's `####`).
"""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

from gmc.errors import DataError
from gmc.grading.extract import last_boxed
from gmc.problems.rows import JsonNumber, Row

QUESTION_FIELDS = ("problem", "question", "prompt", "query", "input", "instruction", "messages")
ANSWER_FIELDS = (
    "answer",
    "final_answer",
    "expected_answer",
    "ground_truth",
    "gold",
    "target",
    "reward_model.ground_truth",
)
SOLUTION_FIELDS = ("solution", "worked_solution")
CONTEXT_FIELDS = ("context", "body", "passage")
ID_FIELDS = ("problem_id", "unique_id", "id", "idx", "index")
KIND_FIELDS = ("subject", "subfield", "type", "category", "level")

LONGEST_PROSE = 15
"""An answer with more words than this outside LaTeX is taken for an explanation (golds of the public sets have at most 8)."""

_PROSE = re.compile(r"[A-Za-z]{3,}")
_NOT_PROSE = re.compile(r"\\text\w*\{[^{}]*\}|\\[A-Za-z]+")
_SENTENCE_END = re.compile(r"[a-z]{2}[.!?]\s+[A-Z]")
_TEXT_LIST = re.compile(r"""\[\s*['"].*\]""", re.DOTALL)


class RefusedRowError(ValueError):
    """A row that cannot become a problem; the text is the reason, counted and shown."""


class NoFieldError(DataError):
    """A row lacks a field. names: those looked for; missing: the error without its cure."""

    def __init__(self, names: tuple[str, ...], missing: str, cure: str) -> None:
        super().__init__(f"{missing}; {cure}")
        self.names, self.missing = names, missing


def lookup(values: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """(field is there, its value) for a name compared without case; a dot goes into a nested object."""
    head, _, rest = name.partition(".")
    exact = name if name in values else next((key for key in values if key.lower() == name.lower()), None)
    if exact is not None:
        return True, values[exact]
    outer = next((key for key in values if key.lower() == head.lower()), None)
    if rest and outer is not None and isinstance(values[outer], Mapping):
        return lookup(values[outer], rest)
    return False, None


def find_question(row: Row, field: str | None, where: str) -> str:
    """The question text; a passage that goes with it (SVAMP's Body) stands before it.

    Raises `DataError` when the row has no such field, `RefusedRowError` when the field holds no question.
    """
    names = (field,) if field else QUESTION_FIELDS
    name, value = _first_with_value(row, names, "question", where)
    question = _question_text(value)
    if not question:
        raise RefusedRowError(f"no question ({name} is {_shown(value)})")
    if field is None:
        for context in CONTEXT_FIELDS:
            passage = lookup(row.values, context)[1]
            if isinstance(passage, str) and passage.strip():
                question = _join_passage(passage.strip(), question)
    return question


def _join_passage(passage: str, question: str) -> str:
    return f"{passage if passage[-1] in '.?!:;,' else passage + '.'} {question}"


def _question_text(value: Any) -> str:
    if isinstance(value, list) and value:
        return _user_turn(value)
    if isinstance(value, str):
        return value.strip()
    return ""


def _user_turn(messages: list[Any]) -> str:
    """The one user message of a chat; anything that a single question cannot stand for is refused."""
    turns = [message for message in messages if isinstance(message, Mapping)]
    roles = [str(turn.get("role")) for turn in turns]
    if len(turns) != len(messages) or roles.count("user") != 1 or roles[-1] != "user":
        raise RefusedRowError(f"a chat prompt must end with its only user turn, not {'/'.join(roles) or 'a bare list'}")
    if "system" in roles:
        raise RefusedRowError("a chat prompt with a system turn (instructions come from the template)")
    content = turns[-1].get("content")
    return content.strip() if isinstance(content, str) else ""


def find_answer(row: Row, field: str | None, where: str) -> str:
    """The gold answer.

    Raises `DataError` when the row has no such field, `RefusedRowError` when no gold can be read from it.
    """
    names = (field,) if field else ANSWER_FIELDS + SOLUTION_FIELDS
    name, value = _first_with_value(row, names, "answer", where)
    if _is_missing(value):
        raise RefusedRowError(f"no answer ({name} is {_shown(value)})")
    many = lookup(row.values, "is_multiple_answer")[1] is True
    return gold_text(value, worked=name in SOLUTION_FIELDS, many=many)


def raw_answer(row: Row, field: str | None, where: str) -> str:
    """What stands in the answer's field, as text and nothing taken off; empty where that is neither text nor a number."""
    _, value = _first_with_value(row, (field,) if field else ANSWER_FIELDS + SOLUTION_FIELDS, "answer", where)
    return str(value).strip() if isinstance(value, str | int | float) and not _is_missing(value) else ""


def plain(value: Any) -> Any:
    """A field's value as other tools read it: numbers are numbers, objects are dicts."""
    if isinstance(value, JsonNumber):
        whole = re.fullmatch(r"-?\d+", value) and len(value) < 4000  # Python reads no longer ones
        return int(value) if whole else float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def gold_text(value: Any, *, worked: bool = False, many: bool = False) -> str:
    """The gold answer in a field's value, as text.

    worked: the field holds a worked solution, so only its last box counts; many: a list of several values means all of them.
    Raises `RefusedRowError` with the reason.
    """
    if isinstance(value, bool):
        raise RefusedRowError(f"the answer is the truth value {value}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RefusedRowError(f"the answer is {value}")
    if isinstance(value, str) and not isinstance(value, JsonNumber) and _TEXT_LIST.fullmatch(value.strip()):
        value = _parsed_list(value.strip())
    if isinstance(value, list):
        if len(value) != 1 and not many:
            raise RefusedRowError(f"the answer is a list of {len(value)} values, and nothing says whether all are wanted")
        return ",".join(gold_text(item, worked=worked) for item in value)
    if isinstance(value, Mapping | bytes):
        raise RefusedRowError(f"the answer is of type {type(value).__name__}")
    return _from_text(str(value).strip(), worked)


def _from_text(text: str, worked: bool) -> str:
    if "####" in text:
        text = text.rpartition("####")[2].strip()
    else:
        box = last_boxed(text)
        if box is not None:
            text = box.strip()
        elif worked:
            raise RefusedRowError("the solution has no \\boxed{} and there is no answer field")
    text = re.sub(r"(?<!\\)\$", "", text).strip() if "$" in text else text
    if not text:
        raise RefusedRowError("the answer is empty")
    prose = _PROSE.findall(_NOT_PROSE.sub(" ", text))
    if len(prose) > LONGEST_PROSE or _SENTENCE_END.search(text):
        raise RefusedRowError(f"the answer is an explanation of {len(text.split())} words without \\boxed{{}}")
    return text


def _parsed_list(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise RefusedRowError(f"the answer is a list written as text ({text[:40]})") from error


def find_label(row: Row, names: tuple[str, ...]) -> str:
    """The first of these fields that holds text or a number, as text; empty when none does."""
    for name in names:
        value = lookup(row.values, name)[1]
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _first_with_value(row: Row, names: tuple[str, ...], wanted: str, where: str) -> tuple[str, Any]:
    """(name, value) of the first field that has a value, else of the first that is there."""
    present = [(name, value) for name in names for there, value in [lookup(row.values, name)] if there]
    if not present:
        tried = names[0] if len(names) == 1 else f"any of {', '.join(names)}"
        missing = f"{where}: no {wanted} field ({tried}); the row has {', '.join(row.values) or 'no fields'}"
        raise NoFieldError(names, missing, f"name the right one with --{wanted}-field")
    return next((pair for pair in present if not _is_missing(pair[1])), present[0])


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    if isinstance(value, str | list):
        return len(value.strip() if isinstance(value, str) else value) == 0
    return False


def _shown(value: Any) -> str:
    return "null" if value is None else "empty" if _is_missing(value) else type(value).__name__
