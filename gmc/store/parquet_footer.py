"""What a Parquet footer says of each column chunk, read without the Parquet library: that one aborts the process, past any
`except`, over some damaged footers when it is asked for a chunk. The format is Thrift's compact protocol.
"""

from dataclasses import dataclass
from typing import Any, BinaryIO

MAX_FOOTER_BYTES = 2**26
MAX_NESTING = 16
_MAGIC = b"PAR1"
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_DICTIONARY_ENCODINGS = {2, 8}
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by physical type: INT32, INT64, INT96, FLOAT, DOUBLE."""
BYTE_ARRAY = 6


class FooterError(ValueError):
    """The footer is not one: the file was truncated or damaged."""


@dataclass(frozen=True)
class Chunk:
    """path: the column's name, and below it for lists; size: bytes once unpacked, for texts those of the dictionary alone."""

    path: str
    size: int
    repeats_texts: bool


def read_chunks(file: BinaryIO) -> list[Chunk]:
    """Every column chunk of an open Parquet file. Raises `FooterError` for a footer that cannot be read."""
    try:
        footer = _Compact(_footer(file)).struct(0)
        chunks = [chunk for group in footer.get(4, ()) for chunk in group.get(1, ())]
        return [_chunk(chunk[3]) for chunk in chunks]
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise FooterError(f"its footer: {error}") from error


def _footer(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length > min(size - 8, MAX_FOOTER_BYTES):
        raise ValueError("it is not where it should be")
    file.seek(size - 8 - length)
    return file.read(length)


def _chunk(column: dict[int, Any]) -> Chunk:
    kind, values, unpacked = column[1], column[5], column[6]
    repeats = kind == BYTE_ARRAY and (11 in column or bool(_DICTIONARY_ENCODINGS & set(column[2])))
    return Chunk(b".".join(column[3]).decode(), max(unpacked, values * _WIDTHS.get(kind, 1)), repeats)


class _Compact:
    """Values of the compact protocol, one after another. A struct becomes its fields by number."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > MAX_NESTING:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE, _BYTE):  # a truth value in a list takes a byte
            return self._byte()
        if kind < _DOUBLE:
            return self._integer()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth + 1)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"unknown type {kind}")

    def _list(self, depth: int) -> list[Any]:
        if depth > MAX_NESTING:
            raise ValueError("nested too deeply")
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self._content):
            raise ValueError("a list longer than the footer")
        return [self._value(head & 15, depth) for _ in range(count)]

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number longer than 64 bits")

    def _byte(self) -> int:
        self._place += 1
        return self._content[self._place - 1]

    def _bytes(self, count: int) -> bytes:
        piece = self._content[self._place : self._place + count]
        if len(piece) < count:
            raise ValueError("a text longer than the footer")
        self._place += count
        return piece
