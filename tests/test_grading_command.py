"""`gmc grade` explains a verdict."""

import json

import typer
from typer.testing import CliRunner

from gmc.cli.grade import grade

app = typer.Typer()
app.command("grade")(grade)


def run(*arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == 0, result.output
    return result.output


def test_explains_in_words() -> None:
    output = run("--gold", "\\frac{1}{2}", "--response", "So \\boxed{0.5}.")
    assert "correct" in output
    assert "number" in output
    assert "box" in output
    assert "0.5" in output


def test_json_from_standard_input() -> None:
    found = json.loads(run("--gold", "7", "--response", "-", "--json", stdin="The answer is 8."))
    assert found["verdict"] == "incorrect"
    assert found["source"] == "stated answer"
    assert (found["extracted"], found["normalized_gold"], found["normalized_answer"]) == ("8", "7", "8")


def test_lenient_takes_the_last_number() -> None:
    response = "We walk 3 steps and then 4 of them back to 7"
    assert json.loads(run("--gold", "7", "--response", response, "--json"))["verdict"] == "unparseable"
    assert json.loads(run("--gold", "7", "--response", response, "--json", "--lenient"))["verdict"] == "correct"


def test_says_why_a_gold_cannot_be_graded() -> None:
    found = json.loads(run("--gold", "\\frac{1}{", "--response", "\\boxed{1}", "--json"))
    assert found["verdict"] == "unparseable"
    assert "do not close" in found["gold_problem"]
