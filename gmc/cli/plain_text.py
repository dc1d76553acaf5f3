"""Text that nobody vouches for, made safe to print: a response may hold anything, also what moves a terminal's cursor."""

import unicodedata

_KEPT = {"\n", "\t"}


def visible(text: str) -> str:
    """The text with every control, format and unpaired surrogate character written out, as in \\x1b; line breaks stay.

    >>> visible("a\\x1b[31mb\\u202ec")
    'a\\\\x1b[31mb\\\\u202ec'
    """
    return "".join(character if _is_plain(character) else _escaped(character) for character in text)


def _is_plain(character: str) -> bool:
    return character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
