"""Problem files as rows: JSONL, JSON arrays, Parquet and CSV, strict where a silent repair would change a problem.

Text is UTF-8, with or without a byte-order mark. Lines end at a line feed only: U+2028, U+0085 and their like are characters
that a problem may contain. Whatever cannot be read raises `DataError` with the file and the line; no row is skipped here.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gmc.errors import DataError, UsageError
from gmc.problems.rows import JsonNumber, Row

MAX_FILE_BYTES = 2**32
MAX_DEPTH = 50
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_rows(path: Path) -> list[Row]:
    """Every row of a problem file, in file order.

    The format is taken from the name's ending (.jsonl, .ndjson, .json, .parquet, .csv, .tsv); a .json file may hold an array or
    lines. Raises `DataError` for damage or an empty file, `UsageError` for an unknown ending.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: unknown ending {path.suffix!r}; problem files are {', '.join(READERS)}")
    size = path.stat().st_size
    if size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes)")
    if size > MAX_FILE_BYTES:
        raise DataError(f"{path}: {size / 2**30:.1f} GiB, and the limit is {MAX_FILE_BYTES / 2**30:g} GiB; give a part of it")
    rows = reader(path)
    if not rows:
        raise DataError(f"{path}: the file holds no rows")
    for row in rows:
        _require_shallow(row.values, f"{path}, {row.place}")
    return rows


def _require_shallow(values: Mapping[str, Any], where: str) -> None:
    """Refuse a row nested deeper than any problem, before anything walks through it."""
    level: list[Any] = [values]
    for _ in range(MAX_DEPTH):
        nested = [value for value in level if isinstance(value, Mapping | list)]
        if not nested:
            return
        level = [inner for value in nested for inner in (value.values() if isinstance(value, Mapping) else value)]
    raise DataError(f"{where}: nested more than {MAX_DEPTH} levels deep, which no problem is")


def decode_utf8(path: Path) -> str:
    """The text of a file without its byte-order mark; a wrong byte raises `DataError` naming its line."""
    raw = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8 (no byte was replaced)"
        ) from error


def read_json(path: Path) -> list[Row]:
    """JSON lines, or one array of objects (told apart by the first character)."""
    text = decode_utf8(path)
    return _array(path, text) if text.lstrip().startswith("[") else _lines(path, text)


def _lines(path: Path, text: str) -> list[Row]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"line {number}"
            rows.append(Row(_object(f"{path}, {place}", parse_json(line, f"{path}, {place}")), place))
    return rows


def _array(path: Path, text: str) -> list[Row]:
    values = parse_json(text, str(path))
    return [Row(_object(f"{path}, row {number}", value), f"row {number}") for number, value in enumerate(values, start=1)]


def _object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: a row must be an object with named fields, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, JsonNumber):
        return "a number"
    return {str: "text", list: "a list", bool: "true or false", type(None): "null"}.get(type(value), type(value).__name__)


def parse_json(text: str, where: str) -> Any:
    """Strict JSON with numbers kept as written; NaN becomes None (a missing value); a repeated key is an error."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                raise DataError(f"{where}: the key {key!r} stands twice in one object, so its value is ambiguous")
            record[key] = value
        return record

    try:
        return json.loads(
            text, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=lambda _: None, object_pairs_hook=unique
        )
    except json.JSONDecodeError as error:
        line = "" if ", line" in where else f", line {error.lineno}"
        raise DataError(f"{where}{line}: not valid JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise DataError(f"{where}: not valid JSON (nested too deeply)") from error


def read_csv(path: Path) -> list[Row]:
    """CSV or TSV with a header line. Every value stays text; a row of another width than the header is an error."""
    csv.field_size_limit(sys.maxsize)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(io.StringIO(decode_utf8(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    rows = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) and (header is not None or len(cells) < 2):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _require_separator(header, delimiter, path)
                if not any(header):
                    raise DataError(f"{path}, line {reader.line_num}: the header's {len(header)} columns have no names")
                if len(set(header)) < len(header):
                    raise DataError(f"{path}, line {reader.line_num}: a column name stands twice in the header")
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"{path}, line {reader.line_num}: {len(cells)} values under {len(header)} columns; "
                    "quote values that hold the separator"
                )
            rows.append(Row(dict(zip(header, cells, strict=True)), f"line {reader.line_num}"))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from error
    return rows


def _require_separator(header: list[str], delimiter: str, path: Path) -> None:
    """Refuse a file of one column whose header holds another separator: spreadsheets of many countries write semicolons."""
    other = next((mark for mark in ",;\t|" if mark != delimiter and mark in header[0]), None) if len(header) == 1 else None
    if other is None:
        return
    names = {",": "commas", "\t": "tabs"}
    cure = {",": f"name it {path.with_suffix('.csv').name}", "\t": f"name it {path.with_suffix('.tsv').name}"}
    raise DataError(
        f"{path}, line 1: looks separated by {names.get(other, repr(other))}, and a {path.suffix.lower()} file is read by "
        f"{names[delimiter]}; {cure.get(other, f'save it separated by {names[delimiter]}')}"
    )


def read_parquet(path: Path) -> list[Row]:
    """Parquet as plain Python values (lists stay lists, integers stay integers)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gmc.store.files import open_plain
    from gmc.store.parquet_footer import FooterError, read_chunks
    from gmc.store.parquet_limits import repeated_texts, require_moderate, require_moderate_texts

    try:
        with open_plain(path) as file:
            chunks = read_chunks(file)
            require_moderate(chunks, path)
            table = pq.read_table(file, read_dictionary=repeated_texts(chunks))
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                require_moderate_texts(column, path, name)
        records = table.to_pylist()
    except (pa.ArrowException, OSError, FooterError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    return [Row(record, f"row {number}") for number, record in enumerate(records, start=1)]


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": read_json,
    ".ndjson": read_json,
    ".json": read_json,
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".tsv": read_csv,
}
"""The readable formats by the ending of a file's name."""
