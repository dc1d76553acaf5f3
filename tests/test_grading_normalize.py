r"""Normalization: idempotent, blind to spelling, never to value."""

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from gmc.grading.compare import judge_tiers
from gmc.grading.normalize import is_words, normalize, text_key
from gmc.grading.structure import balanced, read, split_outside

pytestmark = pytest.mark.unit

PIECES = [
    "1", "23", "4.5", "x", "y", "\\frac", "{", "}", "12", "\\sqrt", "(", ")", "[", "]", ",", " ", "=", "+", "-", "^", "_",
    "\\pi",
    "\\text{ cm}", "\\text{and}", "\\left", "\\right", "\\,", "\\!", "$", "%", "\\%", "\\$", "\\le", "<", "°", "²", "√",
    "−", "½",
    "\\dfrac12", "^{\\circ}", "\\cdot", "\\pm", "\\mathrm{~kg}", "{,}", "'", "^{\\prime}", "\\{", "\\}", "\\cup", "\\infty",
    ".",
    "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "apples", "\\mathbf{9}", "\\textbf{(B)}", ":", ";", "\\pmod{7}", "e",
    "d",
]  # fmt: skip
LATEX = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@examples(600)
@given(LATEX)
def test_idempotent(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once


@examples(300)
@given(st.text(max_size=40))
@example("×¨")
@example("x$\u0302$")
@example("{\u0308}a \u0307")
def test_any_text_is_normalized_and_read(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    read(once)


@examples(400)
@given(LATEX)
def test_every_answer_equals_itself(text: str) -> None:
    assert judge_tiers(text, text)[0] is True


@examples(300)
@given(LATEX, LATEX)
def test_settling_never_fails(gold: str, answer: str) -> None:
    assert judge_tiers(gold, answer)[0] in (True, False, None)


@given(st.lists(st.text(alphabet="ab12+", min_size=1, max_size=4), min_size=1, max_size=6))
def test_split_and_join_are_inverse(parts: list[str]) -> None:
    assert [part for part, _ in split_outside(",".join(parts), (",",))] == parts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\\frac12", "\\dfrac{1}{2}"), ("\\frac 1 2", "\\frac{1}{2}"), ("\\frac\\pi2", "\\frac{\\pi}{2}"),
        ("½", "\\frac{1}{2}"),
        ("x ^ 2", "x^{2}"), ("x²", "x^2"), ("\\sqrt2", "\\sqrt{2}"), ("√2", "\\sqrt{2}"), ("\\left( 1,2 \\right)", "(1,2)"),
        ("\\text{Even}", "even"), ("\\mbox{ Monday }", "Monday"), ("\\mathrm{e}", "e"), ("1{,}024", "1024"), ("2{,}5", "2.5"),
        ("90^{\\circ}", "90°"), ("5\\%", "5 percent"), ("x \\leqslant 3", "x ≤ 3"), ("\\$5", "5"), ("f^{\\prime}(2)", "f'(2)"),
        ("\\varnothing", "\\{\\}"), ("a**2", "a^2"), ("{\\bf 9}", "9"), ("\\color{red}{9}", "9"), ("9.", "9"),
        ("{5 \\choose 2}", "\\binom52"),
    ],
)  # fmt: skip
def test_spellings_agree(one: str, other: str) -> None:
    assert text_key(normalize(one)) == text_key(normalize(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^{2y}", "x^2y"), ("f'(2)", "f(2)"), ("A", "a"), ("3 1/4", "31/4"), ("-7", "7"), ("5!", "5"), ("312_4", "312_5"),
        ("\\frac{1}{2}x", "\\frac{1}{2x}"), ("\\sqrt[3]{5}", "\\sqrt{5}"), ("[1,2)", "(1,2]"), ("2{,}5", "25"),
    ],
)  # fmt: skip
def test_values_stay_apart(one: str, other: str) -> None:
    assert text_key(normalize(one)) != text_key(normalize(other))


def test_words_are_told_from_mathematics() -> None:
    assert is_words(normalize("\\text{Saturday}"))
    assert is_words(normalize("no solution here"))
    assert not is_words(normalize("x"))
    assert not is_words(normalize("3\\text{ cm}"))
    assert not is_words(normalize("\\sqrt{abc}"))


def test_brackets_of_unequal_kind_balance() -> None:
    assert balanced("[1,2)")
    assert balanced("\\left\\{1\\right\\}")
    assert not balanced("\\frac{1}{")
    assert not balanced(")(")
