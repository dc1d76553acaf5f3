"""The size and shape of the code: small functions, and small files."""

import ast
import multiprocessing
import subprocess
import sys
import tomllib
from functools import cache
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


@cache
def text_of(path):
    return path.read_text("utf-8")


@cache
def tree_of(path):
    return ast.parse(text_of(path))


def count_lines(path):
    return len(text_of(path).splitlines())


def body_lines(function):
    """Lines of a function from its first to its last statement, the docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def long_functions(tree):
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{each.name}: {body_lines(each)} lines" for each in functions if body_lines(each) > LONGEST_BODY]


def test_a_body_is_counted_from_its_first_statement_to_the_end_of_its_last():
    statements = "\n".join(["    call(", "        1", "    )"] * 13)
    for documented in ("", '    """One line\n\n    and more.\n    """\n'):
        fits = f"def fits():\n{documented}{statements}\n    return 1\n"
        assert long_functions(ast.parse(fits)) == []
        assert long_functions(ast.parse(fits.replace("return 1", "x = (\n        1)"))) == ["fits: 41 lines"]


def named(values):
    """What was found, by file; empty values left out."""
    return {str(path.relative_to(ROOT)): value for path, value in values.items() if value}


def test_functions_are_short():
    assert named({path: long_functions(tree_of(path)) for path in PACKAGE}) == {}


def test_modules_say_what_they_are():
    assert named({path: ast.get_docstring(tree_of(path)) is None for path in PACKAGE}) == {}


def test_files_are_short():
    assert len(OTHERS) > 100
    assert named({path: max(count_lines(path) - LONGEST_FILE, 0) for path in PACKAGE + OTHERS}) == {}


def kinds_asked_for(tree, classes, names):
    """Where code asks which delay or engine it has: isinstance with such a class, or a comparison with such a name."""
    found = []
    for node in ast.walk(tree):
        asked = False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = any(isinstance(word, ast.Name) and word.id in classes for word in ast.walk(node.args[1]))
        elif isinstance(node, ast.Compare):
            constants = (part for side in (node.left, *node.comparators) for part in ast.walk(side))
            asked = any(isinstance(part, ast.Constant) and part.value in names for part in constants)
            asked = asked and "reason" not in ast.unparse(node.left)  # a finish reason may be "length" too
        found += [f"line {node.lineno}: {ast.unparse(node)}"] if asked else []
    return found


def test_nobody_asks_which_delay_or_engine_it_has():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    registered = points["gmc.delays"] | points["gmc.engines"]
    names, classes = set(registered), {value.partition(":")[2] for value in registered.values()}
    assert {"inflight", "vllm", "InflightDelay", "VllmEngine"} <= names | classes
    for line in ("isinstance(clock, (A, LengthDelay))", "spec == 'live'", "x in ('a', 'vllm')"):
        assert kinds_asked_for(ast.parse(line), classes, names) == [f"line 1: {line}"]
    found = {path: kinds_asked_for(tree_of(path), classes, names) for path in PACKAGE}
    assert named(found) == {}


def test_a_unit_test_that_starts_a_process_fails():
    for start in (lambda: subprocess.run([sys.executable, "-V"]), multiprocessing.Process(target=int).start):
        with pytest.raises(AssertionError, match="this test is marked unit and starts a process; mark it process"):
            start()


def test_the_usual_file_is_short():
    assert median(count_lines(path) for path in PACKAGE if path.name != "__init__.py") <= USUAL_FILE
