"""used.jsonl and metrics.jsonl: strict JSON lines, and cutting them back to a checkpoint's frontier."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmc.delays.base import GroupRef
from gmc.errors import DataError
from gmc.store.files import append_jsonl, read_jsonl, strict_json
from gmc.store.logs import cut_log, read_metrics, read_used

pytestmark = pytest.mark.unit


def fill(path: Path, updates: int) -> None:
    for update in range(updates):
        append_jsonl(path, {"update": update, "groups": [[update, 0], [update, 1]], "loss": 0.5})


def test_used_round_trips(tmp_path: Path) -> None:
    fill(tmp_path / "used.jsonl", 2)
    assert read_used(tmp_path / "used.jsonl") == [[GroupRef(0, 0), GroupRef(0, 1)], [GroupRef(1, 0), GroupRef(1, 1)]]
    assert read_used(tmp_path / "absent.jsonl") == []


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s), max_leaves=8))
def test_lines_are_strict_json(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    line = strict_json({"value": value})
    assert "\n" not in line
    json.loads(line, parse_constant=refuse)


def test_non_finite_numbers_become_null() -> None:
    assert json.loads(strict_json({"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}})) == {
        "a": None,
        "b": [None, 1.5],
        "c": {"d": None},
    }


@pytest.mark.parametrize("frontier", [0, 1, 3, 5])
def test_cut_keeps_the_frontier_and_says_what_it_dropped(tmp_path: Path, frontier: int) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 5)
    lines = path.read_text().splitlines()
    cut = cut_log(path, frontier)
    assert path.read_text().splitlines() == lines[:frontier]
    assert (cut.dropped, cut.torn) == (5 - frontier, False)
    expected = f"metrics.jsonl: dropped {5 - frontier} updates beyond the checkpoint"
    assert str(cut) == (expected if frontier < 5 else "metrics.jsonl: dropped nothing")
    append_jsonl(path, {"update": frontier})
    assert [record["update"] for record in read_jsonl(path)] == list(range(frontier + 1))


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 3)
    whole = path.read_bytes()
    for length in range(1, len(whole) // 3):
        path.write_bytes(whole + whole[:length])
        cut = cut_log(path, 3)
        assert cut.torn
        assert "a last line cut by a crash" in str(cut)
        assert path.read_bytes() == whole


def test_cut_of_a_log_that_does_not_exist(tmp_path: Path) -> None:
    assert not cut_log(tmp_path / "metrics.jsonl", 0).torn
    assert not (tmp_path / "metrics.jsonl").exists()
    with pytest.raises(DataError, match="line 1: update 0 is missing, though the run has made 4 updates"):
        cut_log(tmp_path / "metrics.jsonl", 4)


def test_lines_missing_below_the_frontier_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "used.jsonl"
    fill(path, 3)
    with pytest.raises(DataError, match=r"used.jsonl, line 4: update 3 is missing, though the run has made 5 updates"):
        cut_log(path, 5)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[2])
    with pytest.raises(DataError, match="line 2: update 1 should be there, update 2 is"):
        cut_log(path, 3)
    with pytest.raises(DataError, match="line 2: update 1 should be there, update 2 is"):
        read_used(path)


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "used.jsonl"
    fill(path, 3)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:10] + "\n" + lines[2])
    with pytest.raises(DataError, match=r"used.jsonl, line 2: not valid JSON"):
        cut_log(path, 2)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"update": ' + "9" * 5000 + "}", '{"update": 0, "reward/mean": "x"}', "[1]"])
def test_damaged_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"metrics.jsonl, line 1"):
        read_metrics(path)
