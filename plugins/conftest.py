"""Makes every plugin importable, so that its tests run without installing it."""

import sys
from pathlib import Path

for folder in sorted(Path(__file__).parent.iterdir()):
    if (folder / "pyproject.toml").is_file():
        sys.path.insert(0, str(folder))
