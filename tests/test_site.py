"""The documentation's own pictures, and its pages in a browser."""

import importlib.util
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.unit
def test_the_picture_of_the_loop_is_what_its_script_draws(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["make_loop_picture.py", "--check"])
    assert script("make_loop_picture").main() == 0, capsys.readouterr().out


@pytest.mark.unit
@pytest.mark.parametrize(("name", "page"), [("light", "#ffffff"), ("dark", "#1e2129")])
def test_every_text_of_the_picture_can_be_read(name, page):
    """WCAG's contrast of at least 4.5 to the box behind it, or to the page where there is none."""
    root = ElementTree.parse(DOCS / f"loop-{name}.svg").getroot()
    spaced = {"s": "http://www.w3.org/2000/svg"}
    boxes = [{key: value for key, value in each.attrib.items()} for each in root.findall("s:rect", spaced)]
    texts = root.findall("s:text", spaced)
    assert len(boxes) == 6
    assert len(texts) >= 14
    for text in texts:
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        behind = page
        for box in boxes:
            left, top, width, height = (float(box[key]) for key in ("x", "y", "width", "height"))
            if left <= x <= left + width and top <= y <= top + height:
                behind = box["fill"]
        assert contrast(text.attrib["fill"], behind) >= 4.5, text.text


def contrast(first: str, second: str) -> float:
    def luminance(color: str) -> float:
        channels = [int(pair, 16) / 255 for pair in re.findall("..", color[1:])]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.process
def test_no_page_of_the_site_is_wider_than_a_phone():
    looking, site = script("look_at_pages"), os.environ.get("GMC_SITE")
    if site is None:
        pytest.skip("GMC_SITE does not name a built site (mkdocs build --strict --site-dir FOLDER)")
    program = looking.browser()
    if program is None:
        pytest.skip("no chromium on this machine")
    told = looking.too_wide(Path(site), program)
    assert told["pages"] >= 60
    assert told["found"] == []


@pytest.mark.process
def test_a_page_that_sticks_out_or_lacks_a_picture_is_found(tmp_path):
    looking = script("look_at_pages")
    program = looking.browser()
    if program is None:
        pytest.skip("no chromium on this machine")
    page = "<!doctype html><meta name=viewport content='width=device-width'><article>{}</article>"
    (tmp_path / "good.html").write_text(page.format("<p>short</p><pre style='overflow:auto'>" + "x" * 500))
    (tmp_path / "wide.html").write_text(page.format("<div style='width:600px'>a table</div>"))
    (tmp_path / "torn.html").write_text(page.format("<img src='gone.png'>"))
    told = looking.too_wide(tmp_path, program)
    assert told["pages"] == 3
    found = {(wrong["page"], wrong["width"]): wrong for wrong in told["found"]}
    assert found.keys() == {("wide.html", 390), ("torn.html", 1280), ("torn.html", 390)}
    assert found["wide.html", 390]["sticks"] == ["DIV: a table"]
    assert found["torn.html", 390]["broken"][0].endswith("/gone.png")
