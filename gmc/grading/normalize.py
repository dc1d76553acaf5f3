r"""One spelling for every way to write the same LaTeX answer.

`normalize` changes spelling, never value: delimiters, spacing, fonts and sizes go; `\frac12`, `\dfrac{1}{2}` and `½` become
`\frac{1}{2}`; words stay inside `\text{...}`. It is idempotent.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ]+")
_SUBSCRIPTS = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ]+")
_FRACTION = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]")
_GLYPHS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "∗": "*", "÷": "/", "⁄": "/", "∕": "/", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "⌀": r"\emptyset ",
    "ø": r"\emptyset ", "Ø": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "′": "'", "’": "'", "‘": "'", "“": '"',
    "”": '"', "„": '"', "«": '"', "»": '"', "⟨": r"\langle ", "⟩": r"\rangle ", "∠": r"\angle ", "∖": r"\setminus ", "∣": "|",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "→": r"\to ", "∧": r"\wedge ",
    "⊂": r"\subset ", "⊆": r"\subseteq ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "ℓ": r"\ell ", "∆": r"\Delta ",
    "\u200b": "", "\u200c": "", "\u200d": "",
    "\ufeff": "", "\u2060": "", "\u00ad": "", "、": ",",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_TABLE = str.maketrans(_GLYPHS | {letter: rf"\{name} " for letter, name in _GREEK.items()})

_STRAY_MARKS = re.compile(r"(?<![\w\u0300-\u036f])[\u0300-\u036f]+")
"""Accents over nothing, as the free-standing `¨` becomes one: they would come to lie on whatever letter ends up before them."""


def to_latex(text: str) -> str:
    """Replace mathematical Unicode by LaTeX; plain ASCII comes back unchanged."""
    if text.isascii():
        return text
    text = _SUPERSCRIPTS.sub(lambda run: "^{" + _plain(run.group()) + "}", text)
    text = _SUBSCRIPTS.sub(lambda run: "_{" + _plain(run.group()) + "}", text)
    text = _FRACTION.sub(lambda glyph: r"\frac{{{}}}{{{}}}".format(*_plain(glyph.group()).split("⁄")), text)
    # Compatibility forms (mathematical alphabets, fullwidth digits) may become glyphs of the table.
    return _STRAY_MARKS.sub("", _plain(text.translate(_TABLE)).translate(_TABLE))


def _plain(text: str) -> str:
    """Compatibility forms as the characters they stand for: `²` as 2, `½` as 1⁄2, fullwidth forms and spaces as ASCII."""
    return unicodedata.normalize("NFKC", text)


Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_NUMBER_WORDS = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
    "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip
_NAMED = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi"
_TEXT = r"\\(?:text(?:bf|it|rm|sf|tt|sc|normal|up)?|mbox|hbox|mathrm|mathsf|mathtt|operatorname\*?)"
_MONTH = re.compile(r"(?i:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]*$")
_FONT = r"\\(?:mathbf|mathit|mathcal|boldsymbol|bm|pmb|underline|emph|boxed|fbox|ensuremath|bold|bf|rm|displaystyle)"
_END = r"(?![a-zA-Z])"
_BRACED = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_ARGUMENT = rf"[0-9a-zA-Z]|\\(?!frac|sqrt|binom)[a-zA-Z]+{_END}(?!\{{)"


def _text(match: re.Match[str]) -> str:
    r"""`\text{17}` is a number, `\mathrm{e}` a letter, `\mathrm{~cm}` a word."""
    content = re.sub(r"\\[ ,;:!]|[~{}]", " ", match[1])
    content = " ".join(content.split())
    if not content:
        return " "
    # `\text{12 cm}` is a value with a unit; `\text{12 June}` is a date.
    amount = re.fullmatch(r"(-?\d[\d,./]*) ?([^\W\d_]+)", content)
    if amount and not _MONTH.match(amount[2]):
        return rf"{amount[1]} \text{{{amount[2]}}}"
    if re.fullmatch(r"[\d.,+\-/ ()%:]+|\\[a-zA-Z]+|[ei]", content) or (content == "d" and "mathrm" in match.group()):
        return f" {content} "
    return rf"\text{{{content}}}"


def _script(digits: str) -> str:
    return digits if len(digits) == 1 else f"{{{digits}}}"


def _compile(rules: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


# Over the whole answer: delimiters, sizes, spacing, fonts, wrappers of words.
WRAPPING: tuple[Rule, ...] = _compile((
    (r"(?<=[\w)}])\*\*(?=[\w({\\-])", "^"),
    (r"\\\$|\$|\\[()]|(?<!\\)\\[\[\]](?!\d)|[€£]|\\pounds\b|\*\*|`|\s", " "),
    (rf"\\(?:left|right|middle)(?![a-zA-Z])\s*\.|\\(?:left|right|middle|[bB]igg?[lrm]?){_END}", " "),
    (rf"\\(?:textstyle|scriptstyle|limits|nolimits|bfseries|itshape|centering|strut|mathstrut){_END}", " "),
    (rf"\\(?:tiny|small|normalsize|[lL]arge|LARGE|[hH]uge){_END}", " "),
    (r"\\(?:[hv]space|[hv]?phantom|label)\*?\s*\{[^{}]*\}", " "),
    # A braced or thin-spaced comma groups thousands before three digits, and is a decimal comma otherwise.
    (r"(?<=\d)(?:\{,\}|,\s*\\!)\s*(?=(?:\\!)?\d{3}(?!\d))", ""),
    (r"(?<=\d)(?:\\,|\\!|\\ )(?=\d{3}(?!\d))", ""),
    (r"(?<=\d)\{,\}(?=\d)", "."),
    (r"\{([,:;=<>+\-.])\}", r"\1"),
    (rf"\\[!]|\\(?:null|empty){_END}", ""),
    (rf"\\[,;:>]|\\(?:quad|qquad|thinspace|medspace|thickspace|enspace|nobreakspace|space){_END}|(?<!\\)\\ |\\$|~", " "),
    (r"\\(?:textcolor|colorbox)\s*\{[^{}]*\}|\\color\s*\{[^{}]*\}", " "),
    (rf"{_FONT}\s*\{{([^{{}}]*)\}}", r"{\1}"),
    (rf"{_FONT}{_END}(?!\s*\{{)", " "),
    (rf"{_TEXT}\s*({_BRACED})", _text),
    (rf"\\mathrm\s+([a-zA-Z0-9]){_END}", r" \1"),
    (r"\\text\{([^{}]*)\}\s*\\text\{([^{}]*)\}", r"\\text{\1 \2}"),
    (r"\\text\{\s*(?i:(?:the )?(?:empty|null) set|no (?:real )?solutions?)\s*\}", r"\\emptyset "),
    (r"\(?\s*\\text\{\s*\(?mod\s*\}\s*(\w+)\s*\)?|\(\s*mod\s+(\w+)\s*\)", lambda m: rf"\pmod{{{m[1] or m[2]}}}"),
    (r"\\text\{\s*(?i:all real numbers|all reals|the real numbers|reals)\s*\}", r"\\mathbb{R}"),
    (r"\\text\{\s*(?i:infinity)\s*\}", r"\\infty "),
    (r"\\text\{\s*degrees?\s*\}", r"^\\circ "),
    (r"\\text\{\s*(?i:\\?%|per\s?cent|pct\.?)\s*\}", "%"),
    (r"_\s*\{?\\text\{\s*(?i:base\s*)?(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen)\s*\}\}?",
     lambda m: "_" + _script(_NUMBER_WORDS[m[1].lower()])),
    (r"(?<=\d)_?\s*\{?\s*\\text\{\s*\(?(?:in\s+)?base[ -]*\}?\s*(\d+)\s*\)?\}*", lambda m: "_" + _script(m[1])),
))  # fmt: skip


def _root(match: re.Match[str]) -> str:
    """The root, of a degree that may be given, of what stands behind it without braces of its own."""
    return rf"\sqrt{match[1] or ''}{{{match[2]}}}"


# Outside `\text{...}`: one name a symbol, one form an argument.
SYMBOLS: tuple[Rule, ...] = _compile((
    (rf"\\[dtc]frac{_END}", r"\\frac"),
    (rf"\\[dt]binom{_END}", r"\\binom"),
    (rf"\\(?:leqslant|leqq|leq|le){_END}|<=|=<", r"\\le "),
    (rf"\\(?:geqslant|geqq|geq|ge){_END}|>=", r"\\ge "),
    (rf"\\(?:neq|ne){_END}|\\not\s*=|(?<=[a-z\s])!=", r"\\ne "),
    (rf"\\lt{_END}", "<"),
    (rf"\\gt{_END}", ">"),
    (rf"\\colon{_END}", ":"),
    (rf"\\(?:mid|[lr]?vert){_END}|\\(?=\|)", "|"),
    (rf"\\lbrace{_END}", r"\\{"),
    (rf"\\rbrace{_END}", r"\\}"),
    (rf"\\lbrack{_END}", "["),
    (rf"\\rbrack{_END}", "]"),
    (rf"\\varnothing{_END}|\\\{{\s*\\\}}", r"\\emptyset "),
    (r"\\(?:Bbb|mathds|mathbb)\s*\{?\s*([RZNQC])\s*\}?", r"\\mathbb{\1}"),
    (rf"\\(?:reals|Reals|R){_END}", r"\\mathbb{R}"),
    (rf"\\(?:infin|infty|infinity|inf){_END}|(?<![\\a-zA-Z])(?:infinity|infty|inf|oo){_END}", r"\\infty "),
    (rf"\\var(theta|phi|epsilon|rho|sigma){_END}", r"\\\1"),
    (r"\*\*", "^"),
    (rf"\*|\\(?:times|ast|cdot){_END}", r"\\cdot "),
    (rf"\\div{_END}", "/"),
    (r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"\^\s*\{\s*((?:\\prime\s*)+)\}", lambda m: "'" * m[1].count("prime")),
    (r"\^?\s*\\prime(?![a-zA-Z])", "'"),
    (r"\{\s*\}\s*(?=\^)", ""),
    (rf"\^\s*\{{\s*\\(?:circ|degrees?){_END}\s*\}}", r"^\\circ "),
    (rf"\^?\s*\\(?:circ|degrees?){_END}|(?<=\d)\s*degrees?{_END}", r"^\\circ "),
    (rf"\\%|(?<=[\d\s}}])(?i:per\s?cent|pct\.?){_END}", "%"),
    (rf"\\(?:dots|cdots|ldots|dotsc|dotsb){_END}|\.\.\.", r"\\ldots "),
    (r"\\exp\s*(?=\{)", "e^"),
    (r"\bnp\.(?=[a-z])|\\operatorname\s*(?=\\)", ""),
    (rf"(?<![\\a-zA-Z])({_NAMED}){_END}", r"\\\1 "),
    (rf"(?<![\\a-zA-Z])(and|or){_END}", r"\\text{\1}"),
    (rf"\\(frac|binom)\s*({_ARGUMENT})", r"\\\1{\2}"),
    (rf"\\(frac|binom)\s*({_BRACED})\s*({_ARGUMENT})", r"\\\1\2{\3}"),
    (r"\\frac\s*(\{[^{}]*\})\s+(?=\{)", r"\\frac\1"),
    (r"([\^_])\s*(\\(?:frac|binom)\{[^{}]*\}\{[^{}]*\})", r"\1{\2}"),
    (r"\\(frac|sqrt|binom)\s+(?=[{\[])", r"\\\1"),
    (r"\\sqrt\s*(\[[^\[\]]*\])?\s*(\d+|[a-zA-Z])", _root),
    (rf"\\sqrt\s*(\[[^\[\]]*\])?\s*(\\[a-zA-Z]+){_END}(?![{{\[(])", _root),
    (r"\\sqrt\s*(\[[^\[\]]*\])?\s*\(([^()]*)\)", _root),
    (r"\\sqrt\[2\]", r"\\sqrt"),
    (r"([\^_])\s*\{\s*(-?[0-9a-zA-Z]|'|\*)\s*\}", lambda m: m[1] + (m[2] if len(m[2]) == 1 else f"{{{m[2]}}}")),
    (r"(?<![\\a-zA-Z0-9}\]^_])\{([^{},]*)\}(?![\^_])", r"\1"),
    (r"\s+", " "),
    (r" ?([=<>+\-^_/(){}\[\];:|&%!']) ?", r"\1"),
    # The space in "6, 317" tells a list from the number 6,317.
    (r" ,|,(?=,)", ","),
    (r"(?<!\d), |, (?!\d{3}(?!\d))", ","),
    (r" ?(\\(?:\\|\{|\})) ?", r"\1"),
    (r"(\\[a-zA-Z]+) (?![a-zA-Z])", r"\1"),
    (r"(?<=[^\sa-zA-Z0-9}]) (?=\\)", ""),
))  # fmt: skip


MAX_ANSWER = 2000
_MAX_PASSES = 20
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_SPLIT_TEXT = re.compile(r"(\\text\{[^{}]*\})")
_EDGES = re.compile(r'^[ ,;:="]+|(?:[ ,;:="]|(?:\.|\\\\|。)[ ,;:="]*)+$')
_KEY_SPACE = re.compile(r"(?<!\d) | (?!\d)")


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The canonical spelling of an answer; one longer than `MAX_ANSWER` characters comes back unchanged."""
    if _PLAIN.fullmatch(text) or len(text) > MAX_ANSWER:
        return text
    text = to_latex(text)
    for _ in range(_MAX_PASSES):
        before = text
        text = _pass(text)
        if text == before:
            break
    return text


def _pass(text: str) -> str:
    """Apply every rule once."""
    for pattern, replacement in WRAPPING:
        text = pattern.sub(replacement, text)
    parts = _SPLIT_TEXT.split(text)
    for index in range(0, len(parts), 2):
        for pattern, replacement in SYMBOLS:
            parts[index] = pattern.sub(replacement, parts[index])
    return _trim("".join(parts))


def _trim(text: str) -> str:
    """Drop punctuation around the answer, and braces and quotes that enclose all of it."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}") and not text.endswith("\\}") and _encloses(text):
        text = text[1:-1]
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        text = text[1:-1]
    return _EDGES.sub("", text)


def _encloses(text: str) -> bool:
    """Whether the first brace closes with the last character."""
    depth = 0
    for position, mark in enumerate(text):
        if mark in "{}" and text[position - 1 : position] != "\\":
            depth += 1 if mark == "{" else -1
            if depth == 0:
                return position == len(text) - 1
    return False


def text_key(normalized: str) -> str:
    r"""What two equal answers share: no spaces (but between digits), words in lower case and without their wrapper."""
    key = _SPLIT_TEXT.sub(lambda m: m.group()[6:-1].lower().replace(".", "").strip(), normalized)
    key = _KEY_SPACE.sub("", key)
    return key.lower() if is_words(normalized) else key


def is_words(normalized: str) -> bool:
    r"""Whether an answer is a word or phrase, not mathematics: letters, spaces and punctuation with a word of three letters.

    A single word in `\text{...}` counts whatever its length, single letters do not (they may be a choice or a variable).
    """
    bare = _SPLIT_TEXT.sub(lambda m: " " + m.group()[6:-1] + " ", normalized).strip()
    if not re.fullmatch(r"[^\W\d_][^\\={}^_<>+*/|]*", bare):
        return False
    return bool(re.search(r"[^\W\d_]{3,}", bare)) or ("\\text" in normalized and bool(re.search(r"[^\W\d_]{2,}", bare)))
