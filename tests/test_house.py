"""The size and shape of the code: small functions, and small files."""

import ast
import tomllib
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


def kinds_asked_for(source, classes, names):
    """Where code asks which delay or engine it has: isinstance with such a class, or a comparison with such a name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            asked = {word.id for word in ast.walk(node.args[1]) if isinstance(word, ast.Name)} & classes
        elif isinstance(node, ast.Compare) and "reason" not in ast.unparse(node.left):  # a finish reason may be "length"
            constants = (part for side in (node.left, *node.comparators) for part in ast.walk(side))
            asked = {part.value for part in constants if isinstance(part, ast.Constant) and part.value in names}
        else:
            asked = set()
        found += [f"line {node.lineno}: {ast.unparse(node)}"] if asked else []
    return found


def test_nobody_asks_which_delay_or_engine_it_has():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    registered = points["gmc.delays"] | points["gmc.engines"]
    names, classes = set(registered), {value.partition(":")[2] for value in registered.values()}
    assert {"inflight", "vllm", "InflightDelay", "VllmEngine"} <= names | classes
    for line in ("isinstance(clock, (A, LengthDelay))", "spec == 'live'", "x in ('a', 'vllm')"):
        assert kinds_asked_for(line, classes, names) == [f"line 1: {line}"]
    found = {path: kinds_asked_for(path.read_text("utf-8"), classes, names) for path in PACKAGE}
    assert named(found) == {}


def test_the_usual_file_is_short():
    assert median(count_lines(path) for path in PACKAGE if path.name != "__init__.py") <= USUAL_FILE
