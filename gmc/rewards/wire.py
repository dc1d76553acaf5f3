"""Plain values as lines of JSON between a run and the process that a reward function runs in. No pickle.

What a column of a data file may hold and JSON cannot (bytes, dates, decimals, NaN) travels under a tag and arrives as it was.
"""

import base64
import datetime
import decimal
import json
from collections.abc import Callable
from typing import Any

_CLOCKS: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
}
_TAG = "\u0000gmc"


def dumps(value: Any) -> bytes:
    """One line. Raises `TypeError` for a value that no data file holds."""
    return json.dumps(_plain(value), ensure_ascii=True).encode() + b"\n"


def loads(line: bytes | str) -> Any:
    """The value of a line. Raises `ValueError` for what is no JSON."""
    return json.loads(line, object_hook=_restored)


def is_writable(text: str) -> bool:
    """Whether UTF-8 can write it, which half of a surrogate pair it cannot.

    >>> is_writable("π"), is_writable(chr(0xD800))
    (True, False)
    """
    try:
        text.encode()  # a hundred times quicker than looking at each character
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {_TAG: "bytes", "value": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return {_TAG: type(value).__name__, "value": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {_TAG: "timedelta", "value": value.total_seconds()}
    if isinstance(value, decimal.Decimal):
        return {_TAG: "Decimal", "value": str(value)}
    return value


def _restored(record: dict[str, Any]) -> Any:
    if _TAG not in record:
        return record
    kind, value = record[_TAG], record["value"]
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "Decimal":
        return decimal.Decimal(value)
    if kind == "timedelta":
        return datetime.timedelta(seconds=value)
    return _CLOCKS[kind](value)
