"""The part of `--delay SPEC` behind the name, as a delay model reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from gmc.errors import UsageError

LARGEST_DELAY = 1_000_000


@dataclass(frozen=True)
class Arguments:
    """spec: the delay as the user wrote it; text: what comes after the name and its colon; examples: specs that are right."""

    spec: str
    text: str
    examples: Sequence[str]

    @classmethod
    def of(cls, spec: str, name: str, examples: Sequence[str]) -> "Arguments":
        """The arguments of a spec that the delay `name` reads: what stands behind its name, or all of a bare number."""
        first, _, text = spec.partition(":")
        return cls(spec, text if first == name else spec, examples)

    @property
    def values(self) -> list[str]:
        """The text cut at its colons; empty when the spec has no colon."""
        return self.text.split(":") if self.text or self.spec.endswith(":") else []

    def expect(self, least: int, most: int | None = None) -> list[str]:
        """The values, of which there must be `least`, or with `most` anything from `least` to `most`."""
        most = least if most is None else most
        if not least <= len(self.values) <= most:
            count = str(least or "no") if most == least else f"{least} to {most}"
            plural = "" if most == 1 else "s"
            self.refuse(f"it takes {count} value{plural}" + (f", not {len(self.values)}" if most else ""))
        return self.values

    def number(self, text: str, what: str) -> float:
        """A number from 0 to a million; `what` names it in the refusal."""
        try:
            value = float(text)
        except ValueError:
            self.refuse(f"{what} is {text!r}, not a number")
        if not 0 <= value <= LARGEST_DELAY:
            self.refuse(f"{what} is {text}, outside 0 to {LARGEST_DELAY:,}")
        return value

    def whole(self, text: str, what: str, unit: str = "updates") -> int:
        """A whole number of updates, or of another unit, from 0 to a million."""
        value = self.number(text, what)
        if value != int(value):
            self.refuse(f"{what} is {text}, not a whole number of {unit}")
        return int(value)

    def refuse(self, reason: str) -> NoReturn:
        """Raise the `UsageError` that names the spec, the reason and what would be right."""
        raise UsageError(f"--delay {self.spec}: {reason}; for example {', '.join(self.examples)}")
