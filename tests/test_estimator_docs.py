"""The pages of docs/estimators/ are those of the installed rules, and the guide's example keeps the contract."""

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "estimators"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_estimator_pages", ROOT / "docs" / "make_estimator_pages.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    module.registered()
    yield module
    sys.path[:] = before


def test_every_page_and_the_index_are_current(maker):
    for path, text in maker.pages().items():
        assert path.exists(), f"{path.name} is missing: run docs/make_estimator_pages.py"
        assert path.read_text("utf-8") == text, f"{path.name} is out of date: run docs/make_estimator_pages.py"


def test_no_page_is_left_of_a_rule_that_is_gone(maker):
    assert set(PAGES.glob("*.md")) == set(maker.pages())


def test_every_page_says_when_to_use_the_rule_and_when_it_breaks(maker):
    for one in maker.registered():
        written = (PAGES / f"{one.rule.name}.md").read_text("utf-8").partition(maker.MARKER)[2]
        sections = re.findall(r"## (.+)\n\n([^#]+)", written)
        titles = [title for title, _ in sections]
        assert titles[:2] == ["When to use it", "When it breaks"], one.rule.name
        assert titles[2:] in ([], ["Measured"]), one.rule.name
        assert all(len(text.split()) >= 2 for _, text in sections), one.rule.name


def test_links_of_pages_lead_somewhere():
    for page in [*PAGES.glob("*.md"), ROOT / "docs" / "writing-an-estimator.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_names_what_is_not_implemented_and_why(maker):
    text = (PAGES / "README.md").read_text("utf-8")
    for name in ("COPC", "SAO", "BRACE", "PACE"):
        assert f"| {name} |" in text


def test_what_is_a_guess_says_so(maker):
    for one in maker.registered():
        if maker.certainty(one.rule) == "guess":
            assert "GUESS" in one.rule.evidence


def code_lines(module):
    """Lines of code of a module, without docstrings, imports, comments and blank lines."""
    tree = ast.parse(inspect.getsource(module))
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.stmt):
            header = not hasattr(node, "body")
            lines |= set(range(node.lineno, (node.end_lineno if header else node.body[0].lineno - 1) + 1))
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_a_rule_is_one_short_file(maker):
    modules = [inspect.getmodule(one.rule) for one in maker.registered()]
    assert len(set(modules)) == len(modules)
    for module in modules:
        assert code_lines(module) <= 70, f"{module.__name__} has {code_lines(module)} lines of code"


def test_the_guides_example_keeps_the_contract():
    text = (ROOT / "docs" / "writing-an-estimator.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    names = {"__name__": "guide"}
    for block in blocks:
        exec(block, names)
