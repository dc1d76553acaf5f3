"""Makes docs/disputed-answers.md from tests/data/disputed_answers.jsonl: `python docs/make_disputed_page.py`."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROWS, PAGE = ROOT / "tests" / "data" / "disputed_answers.jsonl", ROOT / "docs" / "disputed-answers.md"

HEAD = """# Disputed answers

Rows from public issue trackers and test suites whose verdict people do not share, all of them, each with what gmc decides in
training; a test holds the grader to this table. The choices behind it are under
[Grading](grading.md#what-people-disagree-on). "Leaning" is what the collection that they come from leans to.

| gold | response | gmc | leaning | about |
|---|---|---|---|---|
"""


def rows() -> list[dict[str, Any]]:
    """The rows, responses written out: one that repeats a token is stored as [start, token, times, end]."""
    found = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    for row in found:
        if isinstance(row["response"], list):
            start, token, times, end = row["response"]
            row["shown"], row["response"] = f"{start}{token}{token}…{end}", start + token * times + end
    return found


def page() -> str:
    """The page as it should be."""
    return HEAD + "".join(map(_line, rows()))


def _line(row: dict[str, Any]) -> str:
    cells = [_code(row["gold"]), _code(row.get("shown", row["response"])), _word(row["correct"]), _word(row["leaning"])]
    return f"| {' | '.join(cells)} | {row['about']} |\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _word(correct: bool) -> str:
    return "right" if correct else "wrong"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
