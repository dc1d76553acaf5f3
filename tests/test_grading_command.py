"""`gmc grade` explains a verdict."""

import json

import pytest
import typer
from typer.testing import CliRunner

from gmc.cli.grade import grade

app = typer.Typer()
app.command("grade")(grade)


def run(*arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.unit
def test_explains_in_words() -> None:
    output = run("--gold", "\\frac{1}{2}", "--response", "So \\boxed{0.5}.")
    assert "correct" in output
    assert "number" in output
    assert "box" in output
    assert "0.5" in output


@pytest.mark.unit
def test_json_from_standard_input() -> None:
    found = json.loads(run("--gold", "7", "--response", "-", "--json", stdin="The answer is 8."))
    assert found["verdict"] == "incorrect"
    assert found["source"] == "stated answer"
    assert (found["extracted"], found["normalized_gold"], found["normalized_answer"]) == ("8", "7", "8")


@pytest.mark.unit
def test_lenient_takes_the_last_number() -> None:
    response = "We walk 3 steps and then 4 of them back to 7"
    assert json.loads(run("--gold", "7", "--response", response, "--json"))["verdict"] == "unparseable"
    assert json.loads(run("--gold", "7", "--response", response, "--json", "--lenient"))["verdict"] == "correct"


@pytest.mark.unit
def test_says_why_a_gold_cannot_be_graded() -> None:
    found = json.loads(run("--gold", "\\frac{1}{", "--response", "\\boxed{1}", "--json"))
    assert found["verdict"] == "unparseable"
    assert "do not close" in found["gold_problem"]


DIGITS = "5" * 5000


@pytest.mark.unit
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("\\frac{1}{3}", f"0.{DIGITS}"),
        ("\\frac{1}{3}", DIGITS),
        ("7", f"-{DIGITS}"),
        ("7", f"{DIGITS}.{DIGITS}"),
        ("7", f"\\frac{{1}}{{{DIGITS}}}"),
        ("7", f"\\frac{{{DIGITS}}}{{0.{DIGITS}}}"),
        ("2\\frac{1}{2}", f"{DIGITS}\\frac{{1}}{{2}}"),
        ("2 1/2", f"2 1/{DIGITS}"),
        ("35\\%", f"{DIGITS}\\%"),
        ("(2,7)", f"(2,{DIGITS})"),
        ("\\{1,2\\}", f"\\{{1,{DIGITS}\\}}"),
        ("x=5", f"x={DIGITS}"),
        ("1:2", f"1:{DIGITS}"),
        ("10:30", f"{DIGITS}:30"),
        ("30^\\circ 15'", f"{DIGITS}^\\circ 15'"),
        ("30^\\circ 15'", f"30^\\circ {DIGITS}'"),
        ("x \\equiv 3 \\pmod{7}", f"x \\equiv {DIGITS} \\pmod{{7}}"),
        ("x \\equiv 3 \\pmod{7}", f"x \\equiv 3 \\pmod{{{DIGITS}}}"),
        ("12\\text{ cm}", f"{DIGITS}\\text{{ cm}}"),
        ("120\\text{ minutes}", f"{DIGITS} h 20 min"),
        ("3 \\cdot 10^8", f"3 \\cdot 10^{{{DIGITS}}}"),
        ("3 \\cdot 10^8", f"{DIGITS} \\cdot 10^8"),
        ("312_4", f"{DIGITS}_4"),
        ("2^{10}", f"2^{{{DIGITS}}}"),
        ("10!", f"{DIGITS}!"),
        ("\\sqrt{2}", f"\\sqrt[{DIGITS}]{{2}}"),
        ("x+1", f"x+{DIGITS}"),
        ("0.1\\overline{6}", f"0.1\\overline{{{DIGITS}}}"),
    ],
)
def test_numbers_of_thousands_of_digits_are_graded_and_shown_short(gold, answer):
    """Python refuses to read or to print an integer of more than 4300 digits."""
    for one, other, verdict in ((gold, answer, "incorrect"), (answer, gold, "unparseable")):  # such a gold is refused
        output = run("--gold", one, "--response", f"So \\boxed{{{other}}}.")
        assert output.split()[:2] == ["verdict", verdict]
        assert max(map(len, output.splitlines())) < 400
        assert "5555555555…(5000 digits)" in output


@pytest.mark.process
@pytest.mark.parametrize("residue", ["--3", "3²", "-", "٣"])
def test_a_residue_that_is_no_plain_integer_is_graded(residue):
    output = run("--gold", "x \\equiv 4 \\pmod{7}", "--response", f"So \\boxed{{x \\equiv {residue} \\pmod{{7}}}}.")
    assert output.split()[:2] == ["verdict", "incorrect"]


@pytest.mark.unit
def test_json_keeps_a_long_answer_whole():
    found = json.loads(run("--gold", "7", "--response", f"So \\boxed{{{DIGITS}}}.", "--json"))
    assert found["extracted"] == found["normalized_answer"] == found["answer_reads_as"] == DIGITS


@pytest.mark.process
def test_a_long_text_is_cut_short():
    output = run("--gold", "7", "--response", f"So \\boxed{{{'x+' * 400}x}}.")
    assert max(map(len, output.splitlines())) < 400
    assert "…(801 characters)" in output


@pytest.mark.unit
@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("7", "7"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("\\{1,2\\}", "set {1, 2}"),
        ("1,2", "values in any order: 1, 2"),
        ("(2,7)", "tuple (2, 7)"),
        ("(1,(2,3))", "tuple (1, (2, 3))"),
        ("(0,1]", "interval (0, 1]"),
        ("[1,2,3]", "list [1, 2, 3]"),
        ("0<x\\le 1", "interval (0, 1] of x"),
        ("(0,1)\\cup(2,3)", "union (0, 1) ∪ (2, 3)"),
        ("x=5", "equation x = 5"),
        ("x^2+1\\le y^2", "relation x^2+1 ≤ y^2"),
        ("x\\equiv 3 \\pmod{7}", "congruence x ≡ 3 (mod 7)"),
        ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "matrix [1, 2; 3, 4]"),
        ("\\text{blue}", "words blue"),
    ],
)
def test_says_in_words_how_an_answer_reads(gold, expected):
    found = json.loads(run("--gold", gold, "--response", f"So \\boxed{{{gold}}}.", "--json"))
    assert (found["gold_reads_as"], found["answer_reads_as"]) == (expected, expected)
