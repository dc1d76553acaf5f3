"""Bytes and lines of problem files: what is repaired, what is refused, and that nothing is skipped silently."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmc.errors import DataError, GmcError, UsageError
from gmc.problems.load import load_problems
from gmc.problems.readers import read_rows

pytestmark = pytest.mark.unit

ROW = '{"problem":"What is 2+5?","answer":"7"}'


def write(directory: Path, content: bytes | str, name: str = "problems.jsonl") -> str:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def pairs(source: str) -> list[tuple[str, str]]:
    return [(problem.question, problem.answer) for problem in load_problems(source).problems]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", ROW),
        ("a.json", f"[{ROW}]"),
        ("a.json", ROW),
        ("a.csv", "problem,answer\nWhat is 2+5?,7\n"),
        ("a.tsv", "problem\tanswer\nWhat is 2+5?\t7\n"),
        ("a.JSONL", ROW),
    ],
)
def test_byte_order_mark_changes_nothing(tmp_path: Path, name: str, content: str) -> None:
    plain = load_problems(write(tmp_path, content, name))
    marked = load_problems(write(tmp_path, b"\xef\xbb\xbf" + content.encode(), name))
    assert marked == plain
    assert [(p.question, p.answer) for p in plain.problems] == [("What is 2+5?", "7")]


def test_crlf_and_blank_lines(tmp_path: Path) -> None:
    source = write(tmp_path, b'{"problem":"a","answer":"1"}\r\n\r\n{"answer":"2","problem":"b"}\r\n')
    assert pairs(source) == [("a", "1"), ("b", "2")]
    source = write(tmp_path, b"problem,answer\r\na,1\r\n\r\nb,2\r\n", "a.csv")
    assert pairs(source) == [("a", "1"), ("b", "2")]


def test_last_row_without_newline_is_read(tmp_path: Path) -> None:
    assert pairs(write(tmp_path, f"{ROW}\n" + '{"problem":"b","answer":"2"}'))[-1] == ("b", "2")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_a_line_feed_ends_a_row(tmp_path: Path, separator: str) -> None:
    row = json.dumps({"problem": f"one{separator}two", "answer": "1"}, ensure_ascii=False)
    if separator < "\x20":  # JSON wants control characters escaped; as escapes they are part of the text
        assert "\\u00" in row or "\\f" in row
    assert pairs(write(tmp_path, row + "\n")) == [(f"one{separator}two", "1")]
    csv = f'problem,answer\n"one{separator}two",1\n'
    assert pairs(write(tmp_path, csv, "a.csv")) == [(f"one{separator}two", "1")]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f'{ROW}\n{{"problem":"a\tb","answer":"1"}}\n', 2),  # a raw tab inside a string
        (f"{ROW}\n\n{ROW[:-8]}", 3),  # cut in the middle of the last row
        (f"{ROW}\n".encode() + b'{"problem":"caf\xe9","answer":"1"}\n', 2),  # Latin-1
        (f'{ROW}\n{{"answer":"1","answer":"2","problem":"x"}}\n', 2),  # one key twice
        (f'{ROW}\n["x", "1"]\n', 2),
        (f"{ROW}\n" + '{"problem":' + "[" * 100_000 + "\n", 2),
        ('problem,answer\nx,1\n"a, b",2,3\n', 3),
        ("problem,answer\nx,1\ny\n", 3),
        ('problem,answer\nx,1\n"y,2\n', 3),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, content: str | bytes, line: int) -> None:
    name = "a.csv" if str(content).startswith("problem") else "a.jsonl"
    source = write(tmp_path, content, name)
    with pytest.raises(DataError, match=rf"{name}, line {line}\b"):
        load_problems(source)


def test_damage_in_an_array_is_named_by_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.json, line 2"):
        load_problems(write(tmp_path, f"[{ROW},\n{ROW[:-3]}", "a.json"))


@pytest.mark.parametrize("value", ["NaN", "null", '""', '" "', "[]", "Infinity"])
def test_row_without_a_value_for_the_answer_is_refused(tmp_path: Path, value: str) -> None:
    source = write(tmp_path, f'{ROW}\n{{"problem":"x","answer":{value}}}\n')
    loaded = load_problems(source)
    assert [problem.answer for problem in loaded.problems] == ["7"]
    assert loaded.notes[0] == "2 rows read, 1 kept"
    assert "no answer" in loaded.notes[1]
    assert "line 2" in loaded.notes[1]
    with pytest.raises(DataError, match="no answer"):
        load_problems(write(tmp_path, f'{{"problem":"x","answer":{value}}}\n'))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet"])
def test_empty_file_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    for content in ("", "\n\n  \n"):
        with pytest.raises(DataError, match=name) as caught:
            load_problems(write(tmp_path, content, name))
        assert caught.value.exit_code == 1


def test_header_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        load_problems(write(tmp_path, "problem,answer\n", "a.csv"))
    with pytest.raises(DataError, match="no rows"):
        load_problems(write(tmp_path, "[]", "a.json"))
    pq.write_table(
        pa.table({"problem": pa.array([], pa.string()), "answer": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    with pytest.raises(DataError, match="no rows"):
        load_problems(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("field", ["problem", "answer", "id", "subject"])
def test_lone_surrogate_is_refused_at_load(tmp_path: Path, field: str) -> None:
    row = {"problem": "x", "answer": "1", "id": "a", "subject": "b", field: "\ud800"}
    loaded = load_problems(write(tmp_path, f"{ROW}\n{json.dumps(row)}\n"))
    assert len(loaded) == 1
    assert any("surrogate" in note for note in loaded.notes)


def test_unknown_ending_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.xlsx.*\.jsonl"):
        load_problems(write(tmp_path, "x", "a.xlsx"))
    with pytest.raises(UsageError, match="no such file"):
        load_problems(str(tmp_path / "missing.jsonl"))
    with pytest.raises(UsageError, match="slices"):
        load_problems(f"{tmp_path}/a.jsonl[-100:]")
    with pytest.raises(UsageError, match="not a hub name"):
        load_problems("mathematics")


def test_formats_agree(tmp_path: Path) -> None:
    rows = [{"problem": f"What is {i}+{i}?", "answer": str(2 * i), "subject": "sums"} for i in range(5)]
    lines = "\n".join(json.dumps(row) for row in rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    table = "problem,answer,subject\n" + "".join(f"{row['problem']},{row['answer']},{row['subject']}\n" for row in rows)
    sources = [
        write(tmp_path, lines, "a.jsonl"),
        write(tmp_path, json.dumps(rows, indent=1), "a.json"),
        str(tmp_path / "a.parquet"),
        write(tmp_path, table, "a.csv"),
    ]
    loaded = [load_problems(source) for source in sources]
    assert len({each.content_hash for each in loaded}) == 1
    assert loaded[0].problems[3].kind == "sums"


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet"):
        load_problems(write(tmp_path, b"PAR1 but not really", "a.parquet"))


@given(st.binary(max_size=300))
def test_any_bytes_load_or_fail_with_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("bytes")
    for name in ("a.jsonl", "a.json", "a.csv"):
        path = directory / name
        path.write_bytes(content)
        message = ""
        try:
            assert read_rows(path)
        except GmcError as error:
            message = str(error)
        assert not message or (name in message and "\n" not in message)
