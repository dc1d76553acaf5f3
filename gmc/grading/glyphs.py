r"""Unicode mathematics to LaTeX: minus signs, roots, Greek letters, superscripts, fullwidth forms."""

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ", "0123456789+-()n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ]+")
_FRACTIONS = {glyph: rf"\frac{{{top}}}{{{bottom}}}" for glyph, top, bottom in (
    ("½", 1, 2), ("⅓", 1, 3), ("⅔", 2, 3), ("¼", 1, 4), ("¾", 3, 4), ("⅕", 1, 5), ("⅖", 2, 5), ("⅗", 3, 5), ("⅘", 4, 5),
    ("⅙", 1, 6), ("⅚", 5, 6), ("⅐", 1, 7), ("⅛", 1, 8), ("⅜", 3, 8), ("⅝", 5, 8), ("⅞", 7, 8), ("⅑", 1, 9), ("⅒", 1, 10),
)}  # fmt: skip
_GLYPHS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "∗": "*", "÷": "/", "⁄": "/", "∕": "/", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "⌀": r"\emptyset ",
    "ø": r"\emptyset ", "Ø": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "′": "'", "″": "''", "’": "'", "‘": "'", "“": '"',
    "”": '"', "„": '"', "«": '"', "»": '"', "⟨": r"\langle ", "⟩": r"\rangle ", "∠": r"\angle ", "∖": r"\setminus ", "∣": "|",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "→": r"\to ", "…": r"\ldots ", "∧": r"\wedge ",
    "⊂": r"\subset ", "⊆": r"\subseteq ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "ℓ": r"\ell ", "∆": r"\Delta ",
    "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2007": " ", "\u3000": " ", "\u200b": "", "\u200c": "", "\u200d": "",
    "\ufeff": "", "\u2060": "", "\u00ad": "", "、": ",", "，": ",", "；": ";", "：": ":", "（": "(", "）": ")",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta", "ϑ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_TABLE = str.maketrans(_GLYPHS | _FRACTIONS | {letter: rf"\{name} " for letter, name in _GREEK.items()})


def to_latex(text: str) -> str:
    """Replace mathematical Unicode by LaTeX; plain ASCII comes back unchanged."""
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run.group().translate(_SUBSCRIPTS) + "}", text)
    text = text.translate(_TABLE)
    # Compatibility forms (mathematical alphabets, fullwidth digits) may become glyphs of the table.
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_TABLE)
