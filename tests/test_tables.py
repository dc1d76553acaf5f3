"""Tables at the widths of terminals: no word is cut, nothing is lost."""

import io
import re

import pytest
from rich.console import Console

from gmc.evaluation.tables import new_table

pytestmark = pytest.mark.unit

TITLE = "training reward, %: mean ± 95 % interval over seeds (Student)"
LEFT = ("delay", "estimator.\nname", "optimizer.\nlearning_rate", "seeds")
CELLS = ("ramp:64", "group-truncated", "0.0002", "1 2 3 4 5 6 7 8")


def shown(width: int, left: tuple[str, ...] = LEFT, right: tuple[str, ...] = ("last 50", "best 50")) -> list[str]:
    table = new_table(TITLE, left, right)
    table.add_row(*CELLS[: len(left)], *["70.1 ± 2.3", "72.1\n[71, 73]"][: len(right)])
    table.add_row(*["0", "gmc", "0.1", "1"][: len(left)], *["60.2 ± 1.1", "61.9"][: len(right)])
    written = io.StringIO()
    Console(file=written, width=width, highlight=False).print(table)
    assert table.title == TITLE
    return written.getvalue().splitlines()


@pytest.mark.parametrize("width", [120, 100, 80, 60, 40])
def test_no_word_is_cut_and_none_is_lost_at_any_width(width):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    words = re.split(r"[\s.]+", " ".join(lines))
    for word in re.split(r"[\s.]+", " ".join([TITLE, *LEFT, *CELLS, "last best 70 ± 2 [71, 73] 61 gmc"])):
        assert word in words, (word, width)


def test_columns_of_text_give_way_before_rows_become_lines():
    assert sum("70.1 ± 2.3" in line for line in shown(80)) == 1
    assert any(line.split()[:2] == ["ramp:64", "group-truncated"] for line in shown(80))
    assert "estimator.name           group-truncated" in shown(60)


def test_a_title_is_as_wide_as_the_terminal_and_not_as_its_table():
    assert TITLE in shown(80, left=("delay",), right=("last 50",))
    assert [line.strip() for line in shown(40, left=("delay",), right=("last 50",))[:2]] == [
        "training reward, %: mean ± 95 % interval",
        "over seeds (Student)",
    ]
