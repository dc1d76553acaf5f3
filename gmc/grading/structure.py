r"""Read a normalized answer into a `Shape`."""

import re
from itertools import pairwise

from gmc.grading.normalize import is_words
from gmc.grading.numbers import read_number, ungroup
from gmc.grading.shapes import Congruence, Leaf, Matrix, Named, Relation, Sequence, Several, Shape, Union, Words

_QUALIFIER = re.compile(
    r"[,(]? ?\\text\{[,(]?\s*(?:for|where|with|if|when|whenever|such that|as|in which|assuming|is an?|are|over)\b.*$"
    r"|[,(] ?(?:[a-zA-Z]|\\[a-z]+)(?:,[a-zA-Z])* ?\\in ?\\mathbb\{[ZNRQ]\}(?:\^?[+*]|_[^,]*)?\)?$"
    r"|[,(] ?[a-zA-Z]\\text\{\s*(?:is|are|any|an?)\b.*$"
    r"|(?<=[\w})\]]) (?:for|where|with|if|when|whenever|such that) .*$"
)
_CONGRUENCE = re.compile(
    r"(?:(?P<name>[^=]*?) ?\\equiv ?)?(?P<residue>[^=]+?) ?\(?\\(?:pmod|bmod|mod)"
    r"(?: ?\{(?P<braced>[^{}]+)\}| ?(?P<bare>\w+))\)?"
)
_ENVIRONMENT = re.compile(
    r"(?P<scale>-?(?:\d*|\\frac\{[^{}]*\}\{[^{}]*\}) ?(?:\\cdot)?) ?\\begin\{(?:[pbvBV]?matrix|smallmatrix|array)\*?\}"
    r"(?:\{[lcr|]+\})?(?P<body>.*?)\\end\{\w+\*?\}",
    re.DOTALL,
)
_RELATIONS = ("=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx")
_JOINTS = (",", ";", r"\text{and}", r"\text{or}", r"\text{, and}", r"\text{, or}", r"\text{,}", r"\vee", r"\lor", r"\wedge")
_NAME = re.compile(
    r"(?:m ?)?(?:\\angle ?|\\overline ?|\\triangle ?|\\mathcal ?|\\Delta ?)?(?:\|?\{?(?:[a-zA-Z]|\\[a-zA-Z]+|\\text\{[^{}]*\})"
    r"(?:[a-zA-Z ]|\\[a-zA-Z]+)*(?:_(?:\w|\\[a-z]+|\{[^{}]*\}))*'*\}?\|?)(?:\([^()]*\))?'*(?:\+[a-zA-Z])*"
)
_NOT_NAMES = re.compile(r"\\(?:frac|sqrt|sin|cos|tan|log|ln|pi|infty|cdot|pm|binom|sum|int|prod|lim)(?![a-zA-Z])")
_DERIVATIVE = re.compile(r"\\frac\{d(?:\^\d)? ?[a-zA-Z]\}\{d ?[a-zA-Z](?:\^\d)?\}")
_TUPLE_OF_NAMES = re.compile(r"\([a-zA-Z](?:_\w)?(?:,[a-zA-Z](?:_\w)?)+\)")
_NUMBER_OR_LIST = re.compile(r"-?[1-9]\d{0,2}(?:,[1-9]\d\d)+")
_PLUS_MINUS = re.compile(r" ?\\pm(?![a-zA-Z]) ?")
_MARK = re.compile(r"\\begin\{[a-zA-Z*]+\}|\\end\{[a-zA-Z*]+\}|\\text\{[^{}]*\}|\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil", r"\langle")
_CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil", r"\rangle")
_TURNED = {">": "<", r"\ge": r"\le"}
_MAX_DEPTH = 12


def read(text: str, depth: int = 0) -> Shape:
    """The shape of a normalized answer."""
    if depth > _MAX_DEPTH or not text:
        return Leaf(text)
    text = _QUALIFIER.sub("", text).strip() or text
    text = ungroup(text)
    if read_number(text) is not None:
        return Leaf(text)
    if is_words(text) and not re.search(r"\\text\{(?:and|or)\}|,", text):
        return Words(text)
    several = _several(text, depth)
    if several is not None:
        return several
    congruence = _CONGRUENCE.fullmatch(text)
    if congruence:
        return Congruence(congruence["name"] or "", congruence["residue"], congruence["braced"] or congruence["bare"])
    for reader in (_relation, _union, _bracketed, _matrix):
        shape = reader(text, depth)
        if shape is not None:
            return shape
    return Words(text) if is_words(text) else Leaf(text)


def _several(text: str, depth: int) -> Shape | None:
    r"""Values joined by commas, "and", "or"; `a \pm b` is two values."""
    parts = [part for part, _ in split_outside(text, _JOINTS) if part]
    if len(parts) == 1 and parts[0] == text:
        if not _PLUS_MINUS.search(text) or text.startswith(r"\{"):
            return None
        pair = tuple(dict.fromkeys(_with_sign(text, sign) for sign in ("+", "-")))
        return Several(tuple(read(part, depth + 1) for part in pair))
    items: list[Shape] = []
    name = ""
    for part in parts:
        shape = read(part, depth + 1)
        # In `x=1,2` the name belongs to every value that follows it.
        if isinstance(shape, Named):
            name = shape.name
        elif name and isinstance(shape, Leaf) and not any(isinstance(item, Several) for item in items):
            shape = Named(name, shape)
        items.extend(_flatten(shape))
    if (
        items
        and all(isinstance(item, Union) for item in items)
        and (r"\text{or}" in text or r"\vee" in text or r"\lor" in text)
    ):
        unions = [item for item in items if isinstance(item, Union)]
        return Union(tuple(part for union in unions for part in union.parts), unions[0].variable)
    return items[0] if len(items) == 1 else Several(tuple(items))


def _flatten(shape: Shape) -> tuple[Shape, ...]:
    if isinstance(shape, Several) and not shape.braced:
        return shape.items
    if isinstance(shape, Named) and isinstance(shape.value, Several) and not shape.value.braced:
        return tuple(Named(shape.name, item) for item in shape.value.items)
    return (shape,)


def _with_sign(text: str, sign: str) -> str:
    r"""Choose the upper or the lower sign of every `\pm` and `\mp`."""
    other = "-" if sign == "+" else "+"
    chosen = re.sub(r" ?\\mp(?![a-zA-Z]) ?", other, _PLUS_MINUS.sub(sign, text))
    return re.sub(r"(^|[=({\[,])\+", r"\1", chosen)


def _relation(text: str, depth: int) -> Shape | None:
    membership = split_outside(text, (r"\in",))
    if len(membership) == 2 and is_name(membership[0][0]):
        return read(membership[1][0], depth + 1)
    pieces = split_outside(text, _RELATIONS)
    if len(pieces) == 1:
        return None
    sides, operators = ([part for part, _ in pieces], [operator for _, operator in pieces[:-1]])
    while sides and not sides[0]:
        sides, operators = sides[1:], operators[1:]
    if not all(sides) or not operators:
        return read(sides[0], depth + 1) if len(sides) == 1 else Leaf(text)
    if set(operators) <= {"=", r"\approx"} and is_name(sides[0]) and len(sides) == 2:
        return Named(canonical_name(sides[0]), read(sides[1], depth + 1))
    if operators == [r"\ne"] and is_name(sides[0]):
        return _all_but([sides[1]], canonical_name(sides[0])) or Relation(tuple(sides), (r"\ne",))
    if set(operators) <= set(_TURNED):
        sides, operators = (sides[::-1], [_TURNED[operator] for operator in reversed(operators)])
    return _interval(sides, operators) or Relation(tuple(sides), tuple(operators))


def _interval(sides: list[str], operators: list[str]) -> Shape | None:
    """An inequality that bounds one name, as an interval."""
    if not set(operators) <= {"<", r"\le"} or len(sides) > 3:
        return None
    if len(sides) == 2 and is_name(sides[0]) != is_name(sides[1]):
        if is_name(sides[0]):
            sides, operators = [r"-\infty", *sides], ["<", *operators]
        else:
            sides, operators = [*sides, r"\infty"], [*operators, "<"]
    if len(sides) != 3 or not is_name(sides[1]):
        return None
    left = "[" if operators[0] == r"\le" else "("
    right = "]" if operators[1] == r"\le" else ")"
    return Union((Sequence(left, (Leaf(sides[0]), Leaf(sides[2])), right),), canonical_name(sides[1]))


def _union(text: str, depth: int) -> Shape | None:
    if text == r"\mathbb{R}":
        return Union((Sequence("(", (Leaf(r"-\infty"), Leaf(r"\infty")), ")"),))
    minus = split_outside(text, (r"\setminus", r"\backslash"))
    if len(minus) == 2 and minus[0][0] == r"\mathbb{R}":
        removed = read(minus[1][0], depth + 1)
        if isinstance(removed, Several) and all(isinstance(item, Leaf) for item in removed.items):
            return _all_but([item.text for item in removed.items if isinstance(item, Leaf)], "")
    parts = split_outside(text, (r"\cup",))
    if len(parts) == 1:
        return None
    return Union(tuple(read(part, depth + 1) for part, _ in parts))


def _all_but(points: list[str], variable: str) -> Shape | None:
    """The real line without some points, as a union of intervals; None when the points cannot be put in order."""
    numbers = {point: read_number(point) for point in points}
    if len(points) > 1 and None in numbers.values():
        return None
    ordered = sorted(points, key=lambda point: number.value if (number := numbers[point]) else 0)
    ends = [r"-\infty", *ordered, r"\infty"]
    return Union(tuple(Sequence("(", (Leaf(low), Leaf(high)), ")") for low, high in pairwise(ends)), variable)


def _bracketed(text: str, depth: int) -> Shape | None:
    brackets = enclosed(text)
    if brackets is None:
        return None
    left, inside, right = brackets
    items = [part for part, _ in split_outside(inside, (",", ";"))]
    if left == r"\{":
        builder = re.fullmatch(r"(?:[a-zA-Z](?: ?\\in ?\\mathbb\{R\})?) ?[|:](.+)", inside)
        if builder:
            return read(builder[1], depth + 1)
        content = read(inside, depth + 1)
        return Several(content.items if isinstance(content, Several) and not content.braced else (content,), True)
    if left not in ("(", "[", r"\langle") or right not in (")", "]", r"\rangle") or not all(items):
        return None
    if len(items) == 1:
        return read(inside, depth + 1) if (left, right) == ("(", ")") else None
    return Sequence(
        "(" if left == r"\langle" else left,
        tuple(read(item, depth + 1) for item in items),
        ")" if right == r"\rangle" else right,
    )


def _matrix(text: str, depth: int) -> Shape | None:
    """A matrix, or a number times a matrix."""
    environment = _ENVIRONMENT.fullmatch(text)
    if environment is None:
        return None
    scale = environment["scale"].removesuffix(r"\cdot").strip()
    rows = [row.strip() for row in environment["body"].replace(r"\hline", "").split("\\\\")]
    cells = [[f"{scale}({cell.strip()})" if scale else cell.strip() for cell in row.split("&")] for row in rows if row]
    return Matrix(tuple(tuple(read(cell, depth + 1) for cell in row) for row in cells))


def readings(text: str) -> tuple[Shape, ...]:
    """Every way to read a normalized answer: `8,221` is one number, and also two values when the other side has two."""
    first = read(text)
    if not _NUMBER_OR_LIST.fullmatch(text):
        return (first,)
    return first, Several(tuple(Leaf(value) for value in text.split(",")))


def is_name(text: str) -> bool:
    r"""Whether a text can only name a value: a letter, `f(x)`, `|AB|`, `\\angle A`, `\\frac{dy}{dx}`, `m+n`."""
    if _DERIVATIVE.fullmatch(text) or _TUPLE_OF_NAMES.fullmatch(text):
        return True
    return len(text) <= 40 and _NAME.fullmatch(text) is not None and not _NOT_NAMES.search(text)


def canonical_name(name: str) -> str:
    return re.sub(r"[ |{}]|\\overline|\\text|\\angle|^m(?=\\)", "", name)


def tokens_with_depth(text: str) -> list[tuple[str, int, int]]:
    """Tokens as (token, start, depth); an opening and its closing token carry the depth outside them."""
    found: list[tuple[str, int, int]] = []
    depth = 0
    for match in _MARK.finditer(text):
        turn = _turn(match.group())
        found.append((match.group(), match.start(), depth + min(turn, 0)))
        depth += turn
    return found


def _turn(token: str) -> int:
    """1 when a token opens a bracket, brace or environment, -1 when it closes one."""
    if token in _OPENING or token.startswith(r"\begin{"):
        return 1
    return -1 if token in _CLOSING or token.startswith(r"\end{") else 0


def split_outside(text: str, separators: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split at separators outside all brackets. Returns (part, separator behind it); the last separator is empty."""
    parts: list[tuple[str, str]] = []
    start = 0
    for token, position, depth in tokens_with_depth(text):
        if depth == 0 and token in separators:
            parts.append((text[start:position].strip(), token))
            start = position + len(token)
    return [*parts, (text[start:].strip(), "")]


def enclosed(text: str) -> tuple[str, str, str] | None:
    """(opening, inside, closing) when the first bracket closes with the last token. Brackets need not match in kind."""
    tokens = tokens_with_depth(text)
    if len(tokens) < 2 or any(depth == 0 for _, _, depth in tokens[1:-1]):
        return None
    first, (last, end, depth) = tokens[0][0], tokens[-1]
    if first not in _OPENING or last not in _CLOSING or depth != 0:
        return None
    return first, text[len(first) : end].strip(), last


def balanced(text: str) -> bool:
    """Whether every bracket, brace and environment closes, never before it opens. Brackets of unequal kind may pair."""
    tokens = tokens_with_depth(text)
    return all(depth >= 0 for _, _, depth in tokens) and sum(_turn(token) for token, _, _ in tokens) == 0
