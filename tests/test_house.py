"""The size and shape of the code: small functions, and small files."""

import ast
from pathlib import Path
from statistics import median

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "gmc").rglob("*.py"))
OTHERS = sorted(path for folder in ("tests", "benchmarks", "plugins", "docs") for path in (ROOT / folder).rglob("*.py"))
LONGEST_BODY = 40
LONGEST_FILE = 400
USUAL_FILE = 125
"""Lines of the median file; the aim is 110."""


def count_lines(path):
    return len(path.read_text("utf-8").splitlines())


def body_lines(function):
    """Lines of a function from its first to its last statement, the docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def long_functions(source):
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{each.name}: {body_lines(each)} lines" for each in functions if body_lines(each) > LONGEST_BODY]


def test_a_body_is_counted_from_its_first_statement_to_the_end_of_its_last():
    statements = "\n".join(["    call(", "        1", "    )"] * 13)
    for documented in ("", '    """One line\n\n    and more.\n    """\n'):
        fits = f"def fits():\n{documented}{statements}\n    return 1\n"
        assert long_functions(fits) == []
        assert long_functions(fits.replace("return 1", "x = (\n        1)")) == ["fits: 41 lines"]


def named(values):
    """What was found, by file; empty values left out."""
    return {str(path.relative_to(ROOT)): value for path, value in values.items() if value}


def test_functions_are_short():
    assert named({path: long_functions(path.read_text("utf-8")) for path in PACKAGE}) == {}


def test_modules_say_what_they_are():
    assert named({path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) is None for path in PACKAGE}) == {}


def test_files_are_short():
    assert len(OTHERS) > 100
    assert named({path: max(count_lines(path) - LONGEST_FILE, 0) for path in PACKAGE + OTHERS}) == {}


def test_the_usual_file_is_short():
    assert median(count_lines(path) for path in PACKAGE if path.name != "__init__.py") <= USUAL_FILE
