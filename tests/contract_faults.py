"""What contract tests of plug-ins have in common: faults in declarations, and one plug-in that cannot be closed twice."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field


def broken(sound: type, **members: Any) -> type:
    """A sound plug-in with these members in place of its own."""
    return type("Broken", (sound,), {"__doc__": "Has a fault.", **members})


def settings_with(base: type[BaseModel], **field: Any) -> type[BaseModel]:
    """Settings of one number, `level`. field: what is declared of it besides its default."""
    return type("Settings", (base,), {"__annotations__": {"level": float}, "level": Field(1.0, **field)})


def declaration_faults(sound: type, base: type, settings: type[BaseModel]) -> list[tuple[type, str]]:
    """Faulty declarations and what is found of them.

    base, settings: the seam's own classes, from which `sound` and its settings derive.
    """
    return [
        (broken(sound, name="Not A Name"), "declarations: name 'Not A Name' is not lower-case words and hyphens"),
        (broken(sound, summary=" "), "declarations: summary is empty"),
        (broken(sound, summary="two\nlines"), "declarations: summary has more than one line"),
        (type("Bare", (base,), {**vars(sound), "__doc__": None}), "declarations: it has no docstring"),
        (broken(sound, Settings=settings_with(settings)), "declarations: its setting level has no description"),
    ]


def closes_once(sound: type) -> type:
    """A plug-in that fails when it is closed twice."""

    def init(self: Any, settings: Any = None) -> None:
        sound.__init__(self, settings)  # type: ignore[misc]
        self.processes = ["one"]

    return broken(sound, __init__=init, close=lambda self: self.processes.pop())


def assert_found(check: Callable[[type], object], plugin: type, seam: str, finding: str) -> None:
    """The contract's check refuses this plug-in, and says of what kind it is and what was found."""
    with pytest.raises(AssertionError, match=f"breaks the {seam} contract:") as caught:
        check(plugin)
    assert finding in str(caught.value)
