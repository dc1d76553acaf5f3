"""Installed packages that still require the distribution by its first name, which on the package index is another project's."""

import re
from importlib.metadata import distributions

OLD_NAME = "gmc"
NAME = "gmc-rl"


def old_requirements() -> list[str]:
    """One line for each installed package of plug-ins that requires `gmc`, with the cure; none when all is well."""
    lines = []
    for distribution in distributions():
        if not any(point.group.startswith("gmc.") for point in distribution.entry_points):
            continue
        required = {re.split(r"[\s\[;<>=!~(]", text, maxsplit=1)[0].lower() for text in distribution.requires or ()}
        if OLD_NAME in required:
            name = distribution.metadata["Name"]
            lines.append(
                f"{name} {distribution.version} requires {OLD_NAME!r}, which on the package index is another project: install "
                f"it with --no-deps, and ask its authors to require {NAME!r}"
            )
    return sorted(lines)
