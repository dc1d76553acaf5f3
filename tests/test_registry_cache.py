"""Entry points are read once for an import path, and again when a folder of it has changed."""

import sys
from importlib.metadata import entry_points

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


def test_one_reading_serves_every_group(monkeypatch):
    readings = []
    monkeypatch.setattr("gmc.registry.entry_points", lambda: readings.append(1) or entry_points())
    monkeypatch.setattr(sys, "path", [*sys.path, "a folder that is nowhere else on the path"])
    for group in ("gmc.delays", "gmc.engines", "gmc.delays"):
        assert registered(group) == tuple(entry_points(group=group))
    assert readings == [1]


def test_what_is_installed_later_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert [point.name for point in registered("some.group")] == []
    distribution(tmp_path, "first", "one")
    assert [point.name for point in registered("some.group")] == ["one"]
    distribution(tmp_path, "second", "two")
    assert {point.name for point in registered("some.group")} == {"one", "two"}
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert [point.name for point in registered("some.group")] == []
