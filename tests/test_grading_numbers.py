"""Exact numbers: values, conventions, symmetry, and towers that cost nothing."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmc.grading.compare import judge_tiers
from gmc.grading.normalize import normalize
from gmc.grading.numbers import NotRationalError, Number, TooLargeError, evaluate, numbers_equal, read_number
from gmc.grading.units import compound, split_unit

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42), ("-7", -7), ("058", 58), ("12,345", 12345), ("1 234 567", 1234567), ("1{,}024", 1024),
        ("31.50", Fraction(63, 2)),
        (".25", Fraction(1, 4)), ("\\frac{3}{4}", Fraction(3, 4)), ("-\\frac35", Fraction(-3, 5)), ("3/4", Fraction(3, 4)),
        ("2\\frac{1}{2}", Fraction(5, 2)), ("3 1/4", Fraction(13, 4)), ("-2\\frac13", Fraction(-7, 3)), ("2e8", 200_000_000),
        ("3.4 \\times 10^{-2}", Fraction(34, 1000)), ("10^{-6}", Fraction(1, 10**6)), ("-2./5", Fraction(-2, 5)), ("5!", 120),
        ("\\binom{5}{2}", 10), ("\\sqrt{49}", 7), ("\\sqrt[3]{-27}", -3), ("2^{10}", 1024), ("2^{3^2}", 512), ("-2^2", -4),
        ("4^{1/2}", 2),
        ("2(3+4)", 14), ("1+2\\cdot 3", 7), ("12/2/3", 2), ("0.1\\overline{6}", Fraction(1, 6)), ("\\frac{10!}{8!}", 90),
        ("--3", 3),
    ],
)  # fmt: skip
def test_values(text: str, value: Fraction | int) -> None:
    number = read_number(normalize(text))
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "12,34",
        "352,364,452",
        "5 9/4",
        "\\sqrt{2}",
        "\\frac{1}{0}",
        "0^{-1}",
        "(-8)^{1/2}",
        "1+",
        "(1",
        "2 3",
        "",
        "\\pi",
        "1.5!",
    ],
)
def test_no_rational_number(text: str) -> None:
    assert read_number(normalize(text)) is None


@pytest.mark.parametrize(
    "text", ["9^{9^{9^9}}", "10000!", "10^{10^{10}}", "7e99999", "((1000!)!)!", "2^{-10^{9}}", "\\binom{10^{9}}{5}"]
)
def test_towers_are_refused_not_computed(text: str) -> None:
    number = read_number(normalize(text))
    assert number is not None
    assert number.huge
    assert not numbers_equal(number, number)


@pytest.mark.parametrize(
    "answer",
    ["\\pi^{9^{9^9}}", "\\pi+2^{10^{10}}", "\\prod_{k=1}^{10^{7}}(1+\\frac{2}{k^2})", "\\pi+" + "1+" * 300 + "1"],
)
def test_what_no_parser_should_see_is_different_without_a_worker(answer: str) -> None:
    assert judge_tiers("\\pi", answer) == (False, "number")


def test_deep_nesting_is_refused_not_recursed() -> None:
    with pytest.raises(TooLargeError):
        evaluate("(" * 900 + "1" + ")" * 900)


FRACTIONS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000)


@given(FRACTIONS, FRACTIONS, st.booleans(), st.booleans())
def test_equality_of_exact_numbers_is_symmetric(one: Fraction, other: Fraction, percent: bool, sign: bool) -> None:
    left, right = Number(one, percent), Number(other, sign)
    assert numbers_equal(left, right) == numbers_equal(right, left)
    assert numbers_equal(left, left)


@given(FRACTIONS)
def test_a_fraction_reads_back(value: Fraction) -> None:
    for text in (f"{value.numerator}/{value.denominator}", f"\\frac{{{value.numerator}}}{{{value.denominator}}}", f"({value})"):
        assert evaluate(normalize(text)) == value


@given(st.integers(-(10**15), 10**15), st.integers(0, 9))
def test_decimals_and_groups_read_back(whole: int, places: int) -> None:
    grouped = read_number(f"{whole:,}")
    # Three groups of three digits without a leading zero read as a list of values.
    assert grouped is None or grouped.value == whole
    value = Fraction(whole, 10**places)
    decimal = read_number(f"{'-' if whole < 0 else ''}{abs(whole) // 10**places}.{abs(whole) % 10**places:0{max(places, 1)}d}")
    assert decimal is not None
    assert decimal.value == (value if places else whole)


@given(st.text(alphabet="0123456789.+-/^!(){}e \\fracsqt[],%", max_size=40))
def test_evaluation_ends_in_a_value_or_a_refusal(text: str) -> None:
    try:
        assert isinstance(evaluate(text), Fraction)
    except (NotRationalError, TooLargeError):
        return


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("5\\text{ cm}", "5", "cm"), ("\\frac{1}{2}\\text{ hours}", "\\frac{1}{2}", "hours"), ("5 apples", "5", "apples"),
        ("7c", "7c", ""),
        ("2abc", "2abc", ""), ("90^\\circ", "90", "degree"), ("21個", "21", "個"), ("\\sin 30^\\circ", "\\sin30^\\circ", ""),
        ("3\\cdot 10^8\\ \\mathrm{m/s}", "3\\cdot10^8", "m/s"), ("x\\text{ dollars}", "x", "dollars"),
    ],
)  # fmt: skip
def test_units_come_off(text: str, value: str, unit: str) -> None:
    quantity = split_unit(normalize(text))
    assert (quantity.value, quantity.unit) == (value, unit)


def test_compound_quantities_add_up() -> None:
    assert compound(normalize("3\\text{ h }20\\text{ min}")) == ("time1", 12_000)
    assert compound(normalize("5\\text{ ft }6\\text{ in}")) == compound(normalize("66\\text{ in }0\\text{ ft}"))
    assert compound(normalize("3\\text{ h }20\\text{ cm}")) is None
