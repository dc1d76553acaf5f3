"""Entry points are read once for an import path, and again when a folder of it has changed."""

import sys

import pytest

from gmc.registry import registered

pytestmark = pytest.mark.unit


def distribution(folder, name: str, rule: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[some.group]\n{rule} = {name}:Rule\n")


def test_an_unchanged_path_is_read_once(monkeypatch):
    registered("some.group")
    monkeypatch.setattr("gmc.registry.entry_points", lambda **_: pytest.fail("read again"))
    registered("some.group")


def test_what_is_installed_later_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert [point.name for point in registered("some.group")] == []
    distribution(tmp_path, "first", "one")
    assert [point.name for point in registered("some.group")] == ["one"]
    distribution(tmp_path, "second", "two")
    assert {point.name for point in registered("some.group")} == {"one", "two"}
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert [point.name for point in registered("some.group")] == []
